"""Fills a ledger file with very many jobs in little time, from the stored form of a few real ones."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lucius.adapters.ledgers.rules import group_of, queue_of, ready_steps
from lucius.adapters.ledgers.sqlite.rows import ADD_JOBS, ADD_PLANS
from lucius.adapters.ledgers.sqlite.schema import connect, migrate
from lucius.adapters.ledgers.stored.job_codec import SCHEMA, encode_events, encode_job
from lucius.adapters.ledgers.stored.json_form import maybe_micros, micros
from lucius.adapters.ledgers.stored.plan_codec import encode_plan
from lucius.core.decide import decide
from lucius.core.effects import Event
from lucius.core.job import Job
from tests.conformance.jobs import ack_of, at, failure_of, life_of, make

LANES = range(16)
TENANTS = 8
EVERY = 10
"""Of so many jobs one is held, one released, one failed; the others have succeeded."""
PORTION = 200


def job_id(no: int) -> str:
    return f"{no:08x}-0000-4000-8000-000000000000"


def live_id(n: int) -> str:
    return job_id(1 + n * 5)


def queue(n: int) -> tuple[str, int, str]:
    job = make("template", f"tenant-{n % TENANTS}").job
    return tuple(queue_of(job, 0))  # type: ignore[return-value]


class Template:
    """A stored job that is repeated under other ids."""

    def __init__(self, job: Job, events: tuple[Event, ...]) -> None:
        self.job = job
        self.doc = encode_job(job)
        self.plan = encode_plan(job.plan)
        self.events = encode_events(events)
        self.id = job.job_id.encode()
        self.group = group_of(job)
        self.due_at = maybe_micros(job.due_at)
        self.completed_at = maybe_micros(job.completed_at)
        self.ready = ready_steps(job)

    def row(self, no: int) -> tuple[Any, ...]:
        job = self.job
        return (
            *(no, job_id(no), job.tenant_id, job.plan.request_type, micros(at(0)) + no * 1000),
            *(*self.group[1:], job.state.value, job.version, SCHEMA, job.in_dlq),
            *(self.completed_at, None if self.due_at is None else self.due_at + no),
            *(f"0:{no}" if self.ready else None, self.doc),
        )


def _templates(tenant: str) -> dict[str, Template]:
    held, released = make("template", tenant), make("template", tenant, released=True)
    last = life_of(released.job)[-1]
    acked = decide(released.job, ack_of(released.job), at(1)).job
    failed = decide(acked, failure_of(acked), at(2))
    return {
        "held": Template(held.job, held.events),
        "released": Template(released.job, released.events),
        "failed": Template(failed.job, failed.events),
        "succeeded": Template(last.job, last.events),
    }


def bulk_load(path: Path, jobs: int) -> None:
    conn = connect(path)
    migrate(conn)
    conn.execute("PRAGMA synchronous = OFF")
    by_tenant = [_templates(f"tenant-{n}") for n in range(TENANTS)]
    conn.execute("BEGIN")
    for start in range(1, jobs + 1, PORTION):
        portion = [
            (no, _pick(by_tenant[no % TENANTS], no))
            for no in range(start, min(start + PORTION, jobs + 1))
        ]
        _write(conn, portion)
    conn.execute(
        "INSERT INTO inflight SELECT tenant, lane, mode, count(*) FROM jobs WHERE"
        " state = 'DISPATCHING' GROUP BY 1, 2, 3"
    )
    conn.execute("COMMIT")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.close()


def _pick(templates: dict[str, Template], no: int) -> Template:
    kinds = {0: "held", 1: "released", 2: "failed"}
    return templates[kinds.get((no // TENANTS) % EVERY, "succeeded")]


def _write(conn: sqlite3.Connection, portion: list[tuple[int, Template]]) -> None:
    ADD_JOBS.run(conn, [value for no, template in portion for value in template.row(no)])
    ADD_PLANS.run(conn, list(_plans(portion)))
    conn.executemany(
        "INSERT INTO events (job_no, last_seq, doc) VALUES (?, ?, ?)",
        [(no, template.job.seq, template.events) for no, template in portion],
    )
    conn.executemany(
        "INSERT INTO claims VALUES (?, ?, ?, 0, ?)",
        [(t.job.tenant_id, f"{no:064x}", f"{no:064x}", job_id(no)) for no, t in portion],
    )
    conn.executemany(
        "INSERT INTO ready VALUES (?, ?, ?, ?, ?, ?)",
        [(*queue_of(t.job, 0), no, no, "ocr") for no, t in portion if t.ready],
    )


def _plans(portion: list[tuple[int, Template]]) -> Iterator[Any]:
    for no, template in portion:
        plan = template.plan.replace(template.id, job_id(no).encode())
        yield from (no, f"{no:064x}", 0, plan)
