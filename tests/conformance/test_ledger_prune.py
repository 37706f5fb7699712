"""Retention: what is old, ended and settled goes; nothing else does."""

from dataclasses import replace

from lucius.core.inputs import CancelRequested, EffectSettled, Redriven
from lucius.ports.ledger import Duplicate, JobQuery
from tests.conformance.jobs import at, claim_of, life_of, make, name_of
from tests.conformance.ledger_registry import ADAPTERS, LANES, Harness
from tests.conformance.on_every import on_every

FOREVER = at(10**8)


async def succeed(on: Harness, key: object, seconds: float = 0) -> str:
    made = make(key, released=True, now=at(seconds))
    await on.create(made)
    for decision in life_of(made.job, seconds):
        await on.save(decision)
    return made.job.job_id


@on_every(ADAPTERS)
async def test_a_pruned_job_leaves_nothing_behind(on: Harness) -> None:
    job_id = await succeed(on, 1)
    assert await on.ledger.prune(FOREVER, 10) == 1
    assert await on.ledger.load(job_id) is None
    assert await on.ledger.claimed(claim_of(1)) is None
    assert list(await on.ledger.events(job_id, 0, 10)) == []
    assert (await on.ledger.list(JobQuery())).jobs == []
    assert await on.ledger.verify() == []
    await on.create(make(1))


@on_every(ADAPTERS)
async def test_live_jobs_are_never_pruned(on: Harness) -> None:
    held = await on.create(make("held"))
    released = make("released", released=True)
    await on.create(released)
    running = await on.save(life_of(released.job)[0])
    assert await on.ledger.prune(FOREVER, 10) == 0
    assert await on.ledger.load(held.job_id) == held
    assert await on.ledger.load(running.job_id) == running


@on_every(ADAPTERS)
async def test_a_job_that_owes_is_pruned_once_it_has_paid(on: Harness) -> None:
    made = make(1, callback_urls=("https://client.example/done",))
    job = await on.apply(await on.create(made), CancelRequested())
    assert await on.ledger.prune(FOREVER, 10) == 0
    await on.apply(job, EffectSettled(job.owed[0].owed_id, performed=True))
    assert await on.ledger.prune(FOREVER, 10) == 1


@on_every(ADAPTERS)
async def test_only_what_was_completed_before_goes_and_no_more_than_asked(on: Harness) -> None:
    ids = [await succeed(on, n, n * 100) for n in range(5)]
    assert await on.ledger.prune(at(300), 2) == 2
    assert await on.ledger.prune(at(300), 10) == 1
    left = [await on.ledger.load(job_id) is not None for job_id in ids]
    assert left == [False, False, False, True, True]
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_a_claim_that_another_job_took_over_stays(on: Harness) -> None:
    await on.apply(await on.create(make("old")), CancelRequested())
    again = replace(make("new"), claim=claim_of("old"))
    await on.create(again)
    assert await on.ledger.prune(FOREVER, 10) == 1
    assert await on.ledger.claimed(claim_of("old")) == Duplicate(again.job.job_id)
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_pruning_many_takes_all_of_them(on: Harness) -> None:
    for n in range(300):
        await on.apply(await on.create(make(n)), CancelRequested())
    kept = await on.create(make("kept"))
    assert await on.ledger.prune(FOREVER, 1000) == 300
    assert await on.ledger.load(name_of("job", 7)) is None
    assert (await on.ledger.list(JobQuery())).jobs == [kept]
    assert len(await on.ledger.due(FOREVER, LANES, 10)) == 1
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_a_redriven_job_stays_as_long_as_the_one_that_took_over(on: Harness) -> None:
    """They share a workspace: that of the first."""
    later = make("later")
    job = await on.apply(await on.create(make("first")), CancelRequested())
    await on.apply(job, Redriven(later.job.job_id))
    new = await on.create(later)
    assert await on.ledger.prune(FOREVER, 10) == 0
    assert await on.ledger.load(job.job_id) is not None
    await on.apply(new, CancelRequested())
    assert await on.ledger.prune(FOREVER, 10) == 1
    assert await on.ledger.prune(FOREVER, 10) == 1
    assert (await on.ledger.list(JobQuery())).jobs == []
    assert await on.ledger.verify() == []
