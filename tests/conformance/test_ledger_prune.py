"""Retention: what is old, ended and settled goes; nothing else does."""

from dataclasses import replace
from typing import Any

import pytest

from lucius.core.inputs import CancelRequested, Dismissed, EffectSettled, Redriven
from lucius.core.job import Job
from lucius.ports.ledger import Duplicate, JobQuery, Pruned
from tests.conformance.jobs import at, claim_of, failure_of, life_of, make, name_of
from tests.conformance.ledger_registry import ADAPTERS, BULK, LANES, Adapter, Harness
from tests.conformance.on_every import on_every, params

FOREVER = at(10**8)


async def pruned(on: Harness, page: int = 7) -> int:
    """A whole sweep; it deletes what was counted before."""
    expected, deleted, cursor = await on.ledger.prunable(FOREVER), 0, None
    while True:
        found = await on.ledger.prune(FOREVER, page, cursor)
        deleted, cursor = deleted + found.deleted, found.cursor
        if cursor is None:
            assert deleted == expected
            return deleted


async def succeed(on: Harness, key: object, seconds: float = 0) -> str:
    made = make(key, released=True, now=at(seconds))
    await on.create(made)
    for decision in life_of(made.job, seconds):
        await on.save(decision)
    return made.job.job_id


@on_every(ADAPTERS)
async def test_a_pruned_job_leaves_nothing_behind(on: Harness) -> None:
    job_id = await succeed(on, 1)
    assert await pruned(on) == 1
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
    assert await pruned(on) == 0
    assert await on.ledger.load(held.job_id) == held
    assert await on.ledger.load(running.job_id) == running


@on_every(ADAPTERS)
async def test_a_job_that_owes_is_pruned_once_it_has_paid(on: Harness) -> None:
    made = make(1, callback_urls=("https://client.example/done",))
    job = await on.apply(await on.create(made), CancelRequested())
    assert await pruned(on) == 0
    await on.apply(job, EffectSettled(job.owed[0].owed_id, performed=True))
    assert await pruned(on) == 1


@on_every(ADAPTERS)
async def test_only_what_was_completed_before_goes_and_no_more_than_asked(on: Harness) -> None:
    ids = [await succeed(on, n, n * 100) for n in range(5)]
    first = await on.ledger.prune(at(300), 2)
    assert first.deleted == 2
    assert first.cursor is not None
    assert await on.ledger.prunable(at(300)) == 1
    assert await on.ledger.prune(at(300), 10, first.cursor) == Pruned(1)
    left = [await on.ledger.load(job_id) is not None for job_id in ids]
    assert left == [False, False, False, True, True]
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_a_claim_that_another_job_took_over_stays(on: Harness) -> None:
    await on.apply(await on.create(make("old")), CancelRequested())
    again = replace(make("new"), claim=claim_of("old"))
    await on.create(again)
    assert await pruned(on) == 1
    assert await on.ledger.claimed(claim_of("old")) == Duplicate(again.job.job_id)
    assert await on.ledger.verify() == []


@pytest.mark.slow
@on_every(ADAPTERS, BULK)
async def test_pruning_many_takes_all_of_them(on: Harness) -> None:
    for n in range(300):
        await on.apply(await on.create(make(n)), CancelRequested())
    kept = await on.create(make("kept"))
    assert await pruned(on) == 300
    assert await on.ledger.load(name_of("job", 7)) is None
    assert (await on.ledger.list(JobQuery())).jobs == [kept]
    assert len(await on.ledger.due(FOREVER, LANES, 10)) == 1
    assert await on.ledger.verify() == []


# -- what others need ------------------------------------------------------------------------


async def failed(on: Harness, key: object, **plan: Any) -> Job:
    """A job in the dead-letter view."""
    made = make(key, released=True, **plan)
    await on.create(made)
    return await on.apply(made.job, failure_of(made.job))


@on_every(ADAPTERS)
async def test_what_is_in_the_dead_letter_view_stays_until_someone_decides(on: Harness) -> None:
    dismissed, redriven, left = [await failed(on, n) for n in range(3)]
    assert await pruned(on) == 0
    await on.apply(dismissed, Dismissed())
    await on.apply(redriven, Redriven("job_elsewhere"))
    assert await pruned(on) == 2
    assert (await on.ledger.list(JobQuery(dlq=True))).jobs == [left]
    assert await on.ledger.verify() == []


async def redriven(on: Harness, old: Job, key: object, *, linked: bool) -> Job:
    """The job that takes over from an ended one; its link may not have been written yet."""
    new = await on.create(make(key, redrive_of=old.job_id, root_job_id=old.plan.root))
    if linked:
        await on.apply(old, Redriven(new.job_id))
    return new


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "not linked yet"])
@pytest.mark.parametrize("adapter", params(ADAPTERS))
def test_a_redriven_job_stays_as_long_as_the_one_that_took_over(
    adapter: Adapter, linked: bool
) -> None:
    """They share a workspace: that of the first."""

    async def body(on: Harness) -> None:
        root = await on.apply(await on.create(make("root")), CancelRequested())
        second = await redriven(on, root, "second", linked=linked)
        second = await on.apply(second, CancelRequested())
        third = await redriven(on, second, "third", linked=linked)
        assert await pruned(on) == 0
        assert await on.ledger.load(root.job_id) is not None
        for owed in third.owed:
            third = await on.apply(third, EffectSettled(owed.owed_id, performed=True))
        await on.apply(third, CancelRequested())
        await _settle_links(on, second)
        assert await pruned(on, page=2) == 3
        assert (await on.ledger.list(JobQuery())).jobs == []
        assert await on.ledger.verify() == []

    adapter.run(body)


async def _settle_links(on: Harness, *jobs: Job) -> None:
    for each in jobs:
        job = await on.ledger.load(each.job_id)
        assert job is not None
        for owed in job.owed:
            job = await on.apply(job, EffectSettled(owed.owed_id, performed=True))
