"""Tenants share the window of a lane: one whose workers are silent, slow or bound takes it from nobody."""

import asyncio
from typing import Any

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.core.job import JobState
from lucius.core.routing import lane_of
from lucius.engine.windows import LEAST, Window, Windows
from tests.engine.pullers import Crowd, Puller, attempts_used, gateway_of, submit
from tests.engine.world import Timed, World
from tests.virtual import VirtualLoop, run_virtually

A = "tenant_a"
B = next(f"t{n}" for n in range(1000) if lane_of(f"t{n}") == lane_of(A))
JOBS, SECONDS = 20, 0.4
"""The worker of B finishes its jobs in eight seconds when it is alone."""


def one_for_all(self: Window, tenant_id: str, at: float) -> bool:
    """Whoever comes first has it, and nobody has a place of its own."""
    return self.waiting < self.size(at)


def seconds_for_b(crowd_of_a: Any, *, apart: bool, jobs_of_a: int = 100) -> tuple[float, int]:
    """How long the jobs of B take beside those of A, and the attempts that A has lost by then."""

    async def main(loop: VirtualLoop) -> tuple[float, int]:
        async with World(loop).running() as world:
            gateway = gateway_of(world, apart=apart)
            await gateway.prepare()
            of_a = await submit(world, A, jobs_of_a)
            worker = Puller(world, gateway, frozenset({B}), seconds=SECONDS)
            async with Crowd(worker, *crowd_of_a(world, gateway)):
                await asyncio.sleep(1)
                began, of_b = loop.time(), await submit(world, B, JOBS)
                for job_id in of_b:
                    ended = await world.finished(job_id)
                    assert ended["state"] is JobState.SUCCEEDED
                return loop.time() - began, await attempts_used(world, of_a)

    return run_virtually(main)


def nobody(world: World, gateway: Any) -> list[Puller]:
    return []


def one_slow(world: World, gateway: Any) -> list[Puller]:
    return [Puller(world, gateway, frozenset({A}), seconds=50)]


def forty_polls(world: World, gateway: Any) -> list[Puller]:
    return [Puller(world, gateway, frozenset({A}), seconds=1) for _ in range(40)]


def never_heard(world: World, gateway: Any) -> list[Puller]:
    """They take what there is, and say nothing for a day."""
    return [Puller(world, gateway, frozenset({A}), late=86_400.0) for _ in range(5)]


@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize("crowd", [nobody, one_slow, forty_polls, never_heard])
def test_a_tenant_is_served_as_if_it_were_alone(crowd: Any, apart: bool) -> None:
    seconds, _ = seconds_for_b(crowd, apart=apart)
    assert seconds < 1.1 * JOBS * SECONDS


@pytest.mark.parametrize("crowd", [nobody, one_slow, never_heard])
def test_without_shares_the_window_is_full_with_the_directives_of_another(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Window, "has_capacity", one_for_all)
    seconds, _ = seconds_for_b(crowd, apart=True)
    assert seconds > 3 * JOBS * SECONDS


def test_a_slow_worker_loses_no_attempt_of_what_waits_for_it() -> None:
    """Beside a quick one that passes it all the time."""
    _, used = seconds_for_b(one_slow, apart=False)
    assert used == 0


def test_another_tenant_has_a_place_beyond_a_full_window() -> None:
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=lambda line: False)
    for number in range(LEAST):
        assert windows.has_capacity("ocr", A)
        windows.opened(("ocr", 3), A, f"lease {number}", "job")
    assert not windows.has_capacity("ocr", A)
    assert windows.has_capacity("ocr", B)


def test_what_is_out_is_bounded_however_many_tenants_there_are() -> None:
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=lambda line: False)
    out = 0
    for round_of_all in range(5):
        for number in range(10_000):
            if windows.has_capacity("ocr", f"t{number}"):
                windows.opened(("ocr", 3), f"t{number}", f"lease {round_of_all} {number}", "job")
                out += 1
    assert out < 300


def test_the_room_of_a_lane_that_is_lost_goes_to_what_waits_on_others() -> None:
    other = next(f"t{n}" for n in range(1000) if lane_of(f"t{n}") != lane_of(A))

    async def main(loop: VirtualLoop) -> list[tuple[int, int]]:
        async with World(loop).running() as world:  # nobody serves it
            await submit(world, A, LEAST)
            await submit(world, other, 2)
            await asyncio.sleep(1)
            before = world.outbox.windows.snapshot()
            world.outbox.releases.forget(lane_of(A))
            await asyncio.sleep(1)
            place = ("ocr", lane_of(other))
            return [before[place], world.outbox.windows.snapshot()[place]]

    assert run_virtually(main) == [(1, 0), (2, 0)]


class Greedy(MemoryBus):
    """Gives everyone everything, whatever tenants are asked for."""

    async def receive(self, *args: Any, **named: Any) -> Any:
        return await super().receive(*args[:4])


def test_without_the_choice_of_the_bus_a_worker_takes_the_directives_of_others() -> None:
    async def main(loop: VirtualLoop) -> list[Any]:
        async with World(loop, bus=Greedy()).running() as world:
            gateway = gateway_of(world)
            await gateway.prepare()
            await submit(world, B, JOBS)
            worker = Puller(world, gateway, frozenset({A}))
            await worker.once()
            return worker.batches

    assert run_virtually(main) == [1]


def test_what_was_held_while_others_had_reserved_the_room_goes_out_when_they_give_it_back() -> None:
    """As a request does that turns out to be a duplicate."""

    async def main(loop: VirtualLoop) -> JobState:
        async with World(loop, services=[Timed("ocr", 0)]).running() as world:
            releases, share = world.outbox.releases, (("ocr", lane_of(A)), A)
            for _ in range(LEAST):
                world.outbox.windows.reserve(share)
            (held,) = await submit(world, A, 1)
            for _ in range(LEAST):
                releases.unreserve(share)
            async with asyncio.timeout(60):
                state: JobState = (await world.finished(held))["state"]
                return state

    assert run_virtually(main) is JobState.SUCCEEDED
