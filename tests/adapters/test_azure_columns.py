"""Every column that the data model names is a column of its own."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.copies import Pending
from lucius.adapters.ledgers.azure.heads import (
    COLUMNS,
    JOB_COLUMNS,
    StepsHead,
    job_columns,
    job_row,
    text,
)
from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.store import Row
from lucius.core.decide import decide
from lucius.core.effects import Decision
from lucius.core.inputs import Ticked
from lucius.core.job import Job
from lucius.http.views import instant, job_view
from lucius.ports.ledger import Created
from tests.conformance.azure_ledgers import EVENTS, JOBS, OUTBOX, STEPS, TENANTS, single, split
from tests.conformance.jobs import ack_of, at, failure_of, life_of, make, release_of
from tests.faults.stopping_store import Clock
from tests.memory_tables import MemoryTables

JOB = """job_id tenant_id request_type protocol_id mode tenant_bucket doc_id state status
    idempotency_key idempotency_hash current_step_id current_step_index attempts_total created_at
    updated_at completed_at error_code error_message correlation_id traceparent final_output"""
STEP = """step_id step_index step_type service state status attempt_no lease_id lease_expires_at
    input_ref workspace_ref output_ref payload resolved_mode lane routing_key_used decision_source
    decision_reason result_ref last_error_code last_error_message created_at updated_at
    completed_at"""
ENTRY = """jobId stepId attempt_no lease_id state topic partition payload resolved_mode lane
    routing_key_used decision_source decision_reason created_at sent_at updated_at"""
EVENT = "event_type payload created_at"
CLAIM = "job_id created_at body_hash keyed idempotency_hash"
NAMED: dict[str, Any] = {
    "doc_id": "doc-1",
    "correlation_id": "c-1",
    "traceparent": "00-0-0-01",
    "idempotency_key": "key",
    "idempotency_hash": "hash",
}
WHERE = {
    "ledger": {
        JOB: (JOBS, "JOB"),
        STEP: (JOBS, "STEP|"),
        ENTRY: (JOBS, "OUTBOX|"),
        EVENT: (JOBS, "EVENT|"),
        CLAIM: (TENANTS, ""),
    },
    "table": {
        JOB: (JOBS, ""),
        STEP: (STEPS, "0"),
        ENTRY: (OUTBOX, ""),
        EVENT: (EVENTS, ""),
        CLAIM: (TENANTS, ""),
    },
}
LAYOUTS = {"ledger": single, "table": split}


async def filled(ledger: AzureLedger) -> None:
    """A job that succeeds, and one that fails."""
    good, bad = (make(n, released=True, **NAMED) for n in range(2))
    for made in (good, bad):
        assert await ledger.create(made.claim, made.job, made.events) == Created()
    for decision in life_of(good.job):
        assert await ledger.save(decision.job, decision.job.version - 1, decision.events)
    job = bad.job
    for received in (ack_of, failure_of):
        decision = decide(job, received(job), at(9))
        assert await ledger.save(decision.job, job.version, decision.events)
        job = decision.job
    await ledger.close()


def columns_of(store: MemoryTables, table: str, first: str) -> Sequence[set[str]]:
    rows = store.tables[f"t{table}"]
    return [set(row) for (_, key), row in rows.items() if key.startswith(first)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_named_column_is_there(layout: str) -> None:
    store = MemoryTables()
    asyncio.run(filled(LAYOUTS[layout](store, "t", Clock(at(0)))))
    for wanted, (table, first) in WHERE[layout].items():
        found = set[str]().union(*columns_of(store, table, first))
        assert set(wanted.split()) <= found, set(wanted.split()) - found


EMPTY = ("", None)
"""A table holds no null: a column without a value is absent, or empty where it had one before."""


def same(said: Any, stored: Any) -> bool:
    if said is None:
        return stored in EMPTY
    if isinstance(stored, datetime):
        return bool(instant(stored) == said)
    return stored in (said, text(said))


def differences(row: Row, view: Mapping[str, Any], columns: str) -> Iterator[str]:
    for name in set(columns.split()) & set(view):
        if not same(view[name], row.get(name)):
            yield f"{name}: the row has {row.get(name)!r}, the API says {view[name]!r}"


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_rows_say_what_the_api_says_from_the_first_save_to_the_last(layout: str) -> None:
    """Of the job and its steps, of a job that succeeds and of one that fails at its second attempt."""
    store = MemoryTables()
    lag = {} if layout == "ledger" else {"lag": timedelta()}
    ledger = LAYOUTS[layout](store, "t", Clock(at(0)), **lag)
    for key, life in enumerate((life_of, failing_life)):
        made = make(key, released=True, **NAMED)
        await ledger.create(made.claim, made.job, made.events)
        for decision in life(made.job):
            job = decision.job
            assert await ledger.save(job, job.version - 1, decision.events)
            view = job_view(job, steps=True)
            row = store.tables[f"t{JOBS}"][job_key(layout, job)]
            assert list(differences(row, view, JOB)) == []
            steps = [row for row in step_rows(store, layout) if row["job_id"] == job.job_id]
            assert len(steps) == len(job.steps)
            for row, said in zip(steps, view["steps"], strict=True):
                assert list(differences(row, said, STEP)) == []


def job_key(layout: str, job: Job) -> tuple[str, str]:
    if layout == "ledger":
        return job.job_id, "JOB"
    return names.bucket(job.tenant_id, job.job_id), job.job_id


def step_rows(store: MemoryTables, layout: str) -> list[Row]:
    table, first = WHERE[layout][STEP]
    rows = sorted(store.tables[f"t{table}"].items())
    return [row for key, row in rows if key[1].startswith(first)]


def failing_life(job: Job) -> list[Decision]:
    """A first attempt that is tried again, and a second that fails for good."""
    decisions, now = list[Decision](), job.updated_at
    for received in (
        ack_of,
        partial(failure_of, final=False),
        lambda job: Ticked(),
        release_of,
        ack_of,
        failure_of,
    ):
        now += timedelta(hours=1) if len(decisions) == 2 else timedelta(seconds=1)
        decisions.append(decide(job, received(job), now))
        job = decisions[-1].job
    return decisions


def test_every_column_of_a_jobs_row_is_known_so_that_an_old_value_is_not_kept_for_a_new_one() -> (
    None
):
    job = make(1, callback_urls=("https://client.example",)).job
    head = StepsHead("claim", "body", True, 1)
    row = {**job_row(job, head), **Pending().columns()}
    assert set(job_columns(job)) == JOB_COLUMNS
    assert {name for name in row if name not in ("doc", "pending")} <= COLUMNS
