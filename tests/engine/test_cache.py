"""One lock a job: decisions about a job take turns, and nothing is left behind."""

import asyncio

import pytest

from lucius.engines.outbox.cache import JobCache


async def test_decisions_about_one_job_follow_one_another() -> None:
    cache, order = JobCache(), list[str]()

    async def decide(name: str) -> None:
        async with cache.lock("job"):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(*(decide(name) for name in "abc"))
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert not cache._locks


async def test_decisions_about_different_jobs_do_not_wait() -> None:
    cache = JobCache()
    async with cache.lock("one"), asyncio.timeout(1), cache.lock("other"):
        pass


@pytest.mark.parametrize("already_its_turn", [False, True])
async def test_a_cancelled_waiter_leaves_the_lock_to_the_next(already_its_turn: bool) -> None:
    cache = JobCache()
    entered: list[str] = []

    async def decide(name: str) -> None:
        async with cache.lock("job"):
            entered.append(name)

    async with cache.lock("job"):
        waiting = [asyncio.create_task(decide(name)) for name in "ab"]
        await asyncio.sleep(0)
        if not already_its_turn:
            waiting[0].cancel()
    if already_its_turn:
        waiting[0].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert entered == ["b"]
    assert not cache._locks


async def test_an_error_inside_frees_the_lock() -> None:
    cache = JobCache()
    with pytest.raises(ValueError):
        async with cache.lock("job"):
            raise ValueError
    assert not cache._locks
