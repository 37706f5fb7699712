"""One job that cannot be read: it is named, counted and left out, and no other job is concerned."""

import asyncio
import logging

import pytest

from lucius.core.errors import LedgerRowUnreadableError
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.ports.ledger import Created, Duplicate, JobQuery
from tests.conformance.jobs import at, claim_of, make, name_of
from tests.conformance.ledger_registry import ADAPTERS, DURABLE, LANES, RUINS, Adapter, Harness
from tests.conformance.on_every import on_every, params

FAR = at(10**8)
ABLE = [adapter for adapter in ADAPTERS if DURABLE in adapter.capabilities]


async def ruined(on: Harness, what: str = "document") -> tuple[Job, Job]:
    """Two jobs; the first, which is due and ready first, cannot be read."""
    bad, good = await on.create(make(1)), await on.create(make(2, now=at(1)))
    await on.tamper.ruin(bad.job_id, what)
    await on.reopen()
    return bad, good


async def unreadable(on: Harness, job_id: str) -> LedgerRowUnreadableError:
    with pytest.raises(LedgerRowUnreadableError, match=job_id) as raised:
        await on.ledger.load(job_id)
    return raised.value


@pytest.mark.parametrize("what", RUINS)
@pytest.mark.parametrize("adapter", params(ABLE))
def test_it_is_named_and_counted_and_found_by_verify(adapter: Adapter, what: str) -> None:
    async def body(on: Harness) -> None:
        bad, good = await ruined(on, what)
        error = await unreadable(on, bad.job_id)
        assert (error.job_id, error.tenant_id) == (bad.job_id, "tenant_a")
        assert await on.ledger.unreadable() == 1
        assert await on.ledger.load(good.job_id) == good
        found = {(drift.kind, drift.subject) for drift in await on.ledger.verify()}
        assert ("unreadable", bad.job_id) in found
        assert good.job_id not in str(found)

    adapter.run(body)


@on_every(ADAPTERS, DURABLE)
async def test_lists_leave_it_out(on: Harness) -> None:
    _, good = await ruined(on)
    assert (await on.ledger.list(JobQuery())).jobs == [good]
    assert await on.ledger.unreadable() == 1
    assert await on.ledger.count(JobQuery()) == 2, "counts come from the indexes"
    assert await on.ledger.inflight() is not None


@on_every(ADAPTERS, DURABLE)
async def test_once_met_it_is_due_no_more_and_ready_no_more(on: Harness) -> None:
    bad, good = await ruined(on)
    queue = ("ocr-service", bad.plan.routing.lane, "tenant_a")
    assert [due.job_id for due in await on.ledger.due(FAR, LANES, 1)] == [bad.job_id]
    await unreadable(on, bad.job_id)
    assert [due.job_id for due in await on.ledger.due(FAR, LANES, 1)] == [good.job_id]
    assert await on.ledger.next_due(LANES) == good.due_at
    assert [entry.job_id for entry in await on.ledger.ready(*queue, 1)] == [good.job_id]
    await on.apply(good, CancelRequested())
    assert await on.ledger.next_due(LANES) is None


@on_every(ADAPTERS, DURABLE)
async def test_its_claim_still_holds(on: Harness) -> None:
    bad, _ = await ruined(on)
    assert await on.ledger.claimed(claim_of(1)) == Duplicate(bad.job_id)
    again = make(1)
    outcome = await on.ledger.create(again.claim, again.job, again.events)
    assert outcome == Duplicate(bad.job_id)


@on_every(ADAPTERS, DURABLE)
async def test_it_does_not_hold_up_the_pruning_of_others(on: Harness) -> None:
    _, good = await ruined(on)
    await on.apply(good, CancelRequested())
    await on.ledger.prune(FAR, 10)
    assert await on.ledger.load(good.job_id) is None


@on_every(ADAPTERS, DURABLE)
async def test_writes_that_come_together_with_one_to_it_are_stored(on: Harness) -> None:
    bad, good = await ruined(on, "ready")
    made = make(3)
    answers = await asyncio.gather(
        on.ledger.save(bad, bad.version, ()),
        on.ledger.save(good, good.version, ()),
        on.ledger.create(made.claim, made.job, made.events),
        return_exceptions=True,
    )
    assert isinstance(answers[0], LedgerRowUnreadableError)
    assert list(answers[1:]) == [True, Created()]


@on_every(ADAPTERS, DURABLE)
async def test_one_that_was_mended_counts_again(on: Harness) -> None:
    bad, _ = await ruined(on, "version")
    await unreadable(on, bad.job_id)
    await on.tamper.edit(bad.job_id, lambda doc: doc.update(version=bad.version))
    assert await on.ledger.load(bad.job_id) == bad
    assert await on.ledger.unreadable() == 0
    assert len(await on.ledger.due(FAR, LANES, 10)) == 2


def test_the_log_names_it_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body(on: Harness) -> None:
        bad, _ = await ruined(on)
        for _ in range(3):
            await unreadable(on, bad.job_id)
            await on.ledger.list(JobQuery())

    with caplog.at_level(logging.ERROR):
        ABLE[0].run(body)
    said = [record for record in caplog.records if name_of("job", 1) in record.message]
    assert [record.__dict__["jobId"] for record in said] == [name_of("job", 1)]
