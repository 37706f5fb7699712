"""What a worker that pulls has room for goes out to it, and waiting for its next pull costs nothing."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lucius.core.job import JobState
from lucius.engine.pull_times import PULLED, Visits
from lucius.engine.releases import Pulls
from lucius.engine.windows import LEAST, Windows
from tests.engine.pullers import Crowd, Puller, attempts_used, gateway_of, submit
from tests.engine.world import World
from tests.virtual import VirtualLoop, run_virtually

A = "tenant_a"
ROOM = 50


def scene(
    body: Callable[[World, Puller], Awaitable[Any]], *, apart: bool = False, **puller: Any
) -> Any:
    """A worker that pulls OCR, and nobody else; its gateway is beside the engine, or apart."""

    async def main(loop: VirtualLoop) -> Any:
        async with World(loop).running() as world:
            gateway = gateway_of(world, apart=apart)
            await gateway.prepare()
            return await body(world, Puller(world, gateway, **puller))

    return run_virtually(main)


async def a_hundred_seconds(world: World, worker: Puller) -> list[int]:
    jobs = await submit(world, A, 1000)
    async with Crowd(worker):
        await asyncio.sleep(101)
    assert await attempts_used(world, jobs) == 0
    return worker.batches[:20]


def test_a_worker_that_pulls_fifty_every_five_seconds_gets_fifty() -> None:
    assert scene(a_hundred_seconds, room=ROOM, seconds=5) == [ROOM] * 20


def test_where_the_window_hears_nothing_of_the_pulls_it_gets_a_few() -> None:
    batches = scene(a_hundred_seconds, apart=True, room=ROOM, seconds=5)
    assert max(batches) < ROOM / 5


def test_a_pull_that_waits_is_filled_when_a_backlog_comes() -> None:
    async def body(world: World, worker: Puller) -> list[int]:
        polling = asyncio.create_task(worker.once())
        await asyncio.sleep(3)
        await submit(world, A, 200)
        await polling
        await worker.once()
        return worker.batches

    first, second = scene(body, room=ROOM)
    assert (first > 0, second) == (True, ROOM)


def test_the_bus_holds_little_more_than_what_is_pulled() -> None:
    """Overload stays in the ledger: what is not asked for is held, and runs no clock."""

    async def body(world: World, worker: Puller) -> list[int]:
        await submit(world, A, 1000)
        out = []
        for _ in range(20):
            await worker.once()
            out += [released for released, _ in world.outbox.windows.snapshot().values()]
        return out

    assert max(scene(body, room=ROOM, seconds=5)) <= 2 * LEAST


def test_a_pull_takes_turns_over_tenants_wherever_they_wait() -> None:
    async def body(world: World, worker: Puller) -> Counter[str]:
        for tenant_id, count in ((A, 300), ("tenant_b", 30), ("tenant_c", 30)):
            await submit(world, tenant_id, count)
        found = await worker.gateway.pull("ocr", 60, 0, None, asyncio.Event().wait)
        return Counter(directive["tenant_id"] for directive in found)

    shares = scene(body)
    assert shares.total() == 60
    assert min(shares.values()) >= 18


def test_a_bound_worker_gets_only_its_tenants_out_of_the_backlog() -> None:
    async def body(world: World, worker: Puller) -> set[str]:
        for tenant_id in (A, "tenant_b"):
            await submit(world, tenant_id, 50)
        bound = frozenset({"tenant_b"})
        found = await worker.gateway.pull("ocr", 40, 0, bound, asyncio.Event().wait)
        assert len(found) == 40
        return {directive["tenant_id"] for directive in found}

    assert scene(body) == {"tenant_b"}


async def rarely(world: World, worker: Puller) -> tuple[int, set[JobState]]:
    """The worker comes every four minutes, and does nothing in between."""
    jobs = await submit(world, A, 100)
    for _ in range(25):
        await worker.once()
        await asyncio.sleep(PULLED * 0.8)
    ended = [await world.finished(job_id) for job_id in jobs]
    return await attempts_used(world, jobs), {job["state"] for job in ended}


def test_what_waits_for_the_next_pull_uses_up_no_attempt() -> None:
    assert scene(rarely, room=5, wait=0) == (0, {JobState.SUCCEEDED})


def test_without_the_look_at_the_pulls_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Visits, "awaited", lambda *args: False)
    used, states = scene(rarely, room=5, wait=0)
    assert used > 0
    assert JobState.FAILED_FINAL in states


async def slow_to_speak(world: World, worker: Puller) -> int:
    """Two wait on the bus for 25 seconds before they are handed out; the ACK takes 20 more."""
    jobs = await submit(world, A, 2)
    await asyncio.sleep(25)
    await worker.once()
    return await attempts_used(world, jobs)


def test_the_time_for_the_ack_counts_from_the_hand_out() -> None:
    assert scene(slow_to_speak, room=2, late=20) == 0


def test_counted_from_the_publish_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    handed_out = Pulls.handed_out

    def at_once_over(self: Pulls, lease_id: str, seconds: float) -> None:
        handed_out(self, lease_id, 0.0)

    monkeypatch.setattr(Pulls, "handed_out", at_once_over)
    assert scene(slow_to_speak, room=2, late=20) == 2


def test_a_directive_that_an_idle_worker_does_not_get_is_overdue() -> None:
    """It was lost: a worker that could have taken it is there and gets nothing."""
    now = 0.0
    windows = Windows(lambda: now, by_mode=False, elsewhere=lambda line: False)
    windows.opened(("ocr", 3), A, "lost", "job")
    windows.visits.began("ocr", None)
    windows.visits.ended("ocr", None, spare=False)
    now = 31.0
    assert windows.queued("lost"), "every pull was full"
    windows.visits.began("ocr", frozenset({"tenant_b"}))
    windows.visits.ended("ocr", frozenset({"tenant_b"}), spare=True)
    assert windows.queued("lost"), "it was for another tenant"
    windows.visits.began("ocr", None)
    now = 33.0
    assert not windows.queued("lost"), "one waits, and does not get it"
    windows.visits.ended("ocr", None, spare=True)
    assert not windows.queued("lost")


def test_a_worker_that_never_came_back_is_waited_for_a_while() -> None:
    now = 0.0
    windows = Windows(lambda: now, by_mode=False, elsewhere=lambda line: False)
    windows.visits.began("ocr", None)
    windows.visits.ended("ocr", None, spare=False)
    windows.opened(("ocr", 3), A, "waits", "job")
    now = PULLED - 1
    assert windows.queued("waits")
    now = PULLED + 1
    assert not windows.queued("waits")


def test_a_silent_worker_is_given_one_at_a_time_of_what_it_asks_for() -> None:
    async def body(world: World, worker: Puller) -> list[int]:
        await submit(world, A, 100)
        for _ in range(4):
            polling = asyncio.create_task(worker.once())
            await asyncio.sleep(32)
            polling.cancel()
        return worker.batches

    first, on_the_bus, *later = scene(body, room=20, late=1e6)
    assert (first, on_the_bus <= LEAST, later) == (20, True, [1, 1])
