"""Waiting for a job, on the real engine: the commit wakes, nobody polls, and the end lets everyone go."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lucius.core.inputs import CancelRequested, PauseRequested
from lucius.core.job import Job, JobState
from lucius.engine.outbox import OutboxEngine
from tests.engine.world import World, envelope
from tests.virtual import VirtualLoop, run_virtually

LONG = 60.0


class Watch:
    """An engine with one job that nobody works on; counts who reads it and who sets timers."""

    def __init__(self, loop: VirtualLoop, engine: OutboxEngine, job_id: str) -> None:
        self.loop, self.engine, self.job_id = loop, engine, job_id
        self.reads = self.timers = 0
        self._read, self._call_at = engine.job, loop.call_at
        engine.job = self._counted_read  # type: ignore[method-assign]
        loop.call_at = self._counted_timer  # type: ignore[method-assign]

    async def _counted_read(self, job_id: str) -> Job | None:
        self.reads += 1
        return await self._read(job_id)

    def _counted_timer(
        self, when: float, callback: Callable[..., object], *args: object, **more: object
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return self._call_at(when, callback, *args, **more)  # type: ignore[arg-type]

    async def cancel(self) -> None:
        await self.engine.apply(self.job_id, CancelRequested(immediate=True))

    def ended(self, seconds: float = LONG) -> "asyncio.Task[Job | None]":
        return asyncio.create_task(self.engine.ended(self.job_id, seconds))

    def moved(self, version: int, seconds: float = LONG) -> "asyncio.Task[Job | None]":
        return asyncio.create_task(self.engine.wait(self.job_id, version, seconds))


def watching(body: Callable[[Watch], Awaitable[None]]) -> Callable[[], None]:
    """A test in virtual time, on an engine without services."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        engine = world.engine
        job_id = (await engine.submit(envelope())).job_id
        await body(Watch(loop, engine, job_id))
        await world.outbox.tasks.close()

    def test() -> None:
        run_virtually(main)

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


@watching
async def test_the_commit_wakes_and_not_the_clock(watch: Watch) -> None:
    waiting = watch.ended()
    await asyncio.sleep(0)
    await watch.cancel()
    job = await waiting
    assert job is not None
    assert job.state is JobState.CANCELLED
    assert watch.loop.time() == 0, "no time had to pass"


@watching
async def test_nobody_polls(watch: Watch) -> None:
    waiting = watch.ended()
    await asyncio.sleep(0)
    assert (watch.reads, watch.timers) == (1, 1), "one look, and one timer for the time limit"
    await asyncio.sleep(LONG - 1)
    assert (watch.reads, watch.timers) == (1, 2), "the other is of this test"
    await watch.cancel()
    assert (await waiting) is not None
    assert watch.reads == 2


@watching
async def test_when_the_time_is_over_the_job_is_answered_as_it_is(watch: Watch) -> None:
    job = await watch.ended(7)
    assert job is not None
    assert job.state is JobState.DISPATCHING
    assert watch.loop.time() == pytest.approx(7)
    assert watch.reads == 2


@watching
async def test_a_move_wakes_who_waits_for_a_move_and_not_who_waits_for_the_end(
    watch: Watch,
) -> None:
    version = (await watch.moved(0, 0)).version  # type: ignore[union-attr]
    move, end = watch.moved(version), watch.ended()
    await asyncio.sleep(0)
    await watch.engine.apply(watch.job_id, PauseRequested())
    job = await move
    assert job is not None
    assert job.version == version + 1
    reads = watch.reads
    await asyncio.sleep(1)
    assert (end.done(), watch.reads) == (False, reads), "who waits for the end was not even woken"
    await watch.cancel()
    assert (await end).state is JobState.CANCELLED  # type: ignore[union-attr]


@watching
async def test_who_gives_up_leaves_nothing_behind(watch: Watch) -> None:
    waiting = [watch.ended() for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert [len(waiters) for waiters in watch.engine._waits._enders.values()] == [2]
    for each in waiting[1:]:
        each.cancel()
    await asyncio.sleep(0)
    assert watch.engine._waits._enders == {}


@watching
async def test_the_end_of_the_process_answers_everyone_and_nobody_waits_after(
    watch: Watch,
) -> None:
    waiting = [watch.ended(), watch.moved(10**6)]
    await asyncio.sleep(0)
    watch.engine.end_waits()
    jobs = [*await asyncio.gather(*waiting), await watch.ended()]
    assert {job.state for job in jobs if job} == {JobState.DISPATCHING}
    assert watch.loop.time() == 0
