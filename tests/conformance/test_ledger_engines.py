"""Jobs of both engines in one ledger: a process that knows only one of them leaves the others alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lucius.core.errors import LedgerTooNewError
from lucius.core.inputs import AttemptRequested
from lucius.core.plan import FIRST_DESK, TEMPORAL
from lucius.core.routing import LANES
from lucius.ledgers.azure import heads, scanning
from lucius.ledgers.azure import ledger as azure_ledger
from lucius.ledgers.sqlite import batch, prune, queries
from lucius.ledgers.stored import job_codec
from tests.conformance.jobs import at, make
from tests.conformance.ledger_registry import ADAPTERS, DURABLE, Harness
from tests.conformance.on_every import on_every

FAR = at(10**8)
DESKS = range(FIRST_DESK[TEMPORAL] + LANES)
READERS = (job_codec, batch, prune, queries, heads, scanning, azure_ledger)


@contextmanager
def older_version() -> Iterator[None]:
    """As before there was a second engine: one stored form is known, the first."""
    with pytest.MonkeyPatch.context() as patch:
        for module in READERS:
            patch.setattr(module, "SCHEMA", job_codec.PLAIN)
        yield


@on_every(ADAPTERS, DURABLE)
async def test_a_process_that_knows_one_engine_leaves_jobs_on_temporal_alone(on: Harness) -> None:
    """It would move them without their workflows: it cannot tell them from its own."""
    theirs = await on.create(make(1, engine=TEMPORAL))
    ours = await on.create(make(2, now=at(1)))
    with older_version():
        ledger = await on.reopen()
        with pytest.raises(LedgerTooNewError, match="schema 2"):
            await ledger.load(theirs.job_id)
        assert await ledger.load(ours.job_id) == ours
        assert [due.job_id for due in await ledger.due(FAR, DESKS, 10)] == [ours.job_id]
        later = replace(theirs, version=theirs.version + 1)
        assert not await ledger.save(later, theirs.version, ())


@on_every(ADAPTERS, DURABLE)
async def test_a_job_on_temporal_is_read_as_it_was_saved(on: Harness) -> None:
    job = await on.create(make(1, engine=TEMPORAL))
    moved = await on.apply(job, AttemptRequested(job.plan.steps[0].step_id, 1, "lease-1"))
    ledger = await on.reopen()
    assert await ledger.load(job.job_id) == moved
    assert [due.job_id for due in await ledger.due(FAR, DESKS, 10)] == [job.job_id]
    with older_version():
        older = await on.reopen()
        with pytest.raises(LedgerTooNewError):
            await older.load(job.job_id)
