"""A service that is busy is not silent: what waits for one of its slots uses up no attempt."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lucius.core.job import Job, JobState
from lucius.engine.windows import Windows
from lucius.ports.bus import Message
from tests.engine.world import Timed, World
from tests.virtual import VirtualLoop, run_virtually

SLOW = 100.0
"""Seconds a step takes, half as much to half as much again: far beyond the 30 seconds for an ACK."""


def attempts_used(jobs: list[Job]) -> int:
    return sum(step.used for job in jobs for step in job.steps)


def finished(
    slots: int, seconds: float, submit: Callable[[World], Awaitable[list[str]]]
) -> list[Job]:
    async def main(loop: VirtualLoop) -> list[Job]:
        services = [Timed("ocr", seconds), Timed("embedding", 0), Timed("sis", 0)]
        async with World(loop, services=[*services], slots=slots).running() as world:
            ids = await submit(world)
            return [(await world.finished(job_id))["job"] for job_id in ids]

    return run_virtually(main)


async def one_tenant(world: World) -> list[str]:
    return [await world.submit(number=n) for n in range(12)]


async def every_lane(world: World) -> list[str]:
    """In mode BURST a tenant is spread over all lanes."""
    return [await world.submit(number=n, mode="BURST", doc_id=f"doc-{n}") for n in range(100)]


async def both_modes(world: World) -> list[str]:
    """One worker takes directives of both modes, so a long step in one keeps the other waiting."""
    burst = await world.submit(number=0, mode="BURST", doc_id="doc-0")
    return [burst, *[await world.submit(number=n) for n in range(1, 4)]]


def test_a_slot_that_is_busy_in_one_mode_fails_no_job_of_the_other() -> None:
    jobs = finished(1, 3 * SLOW, both_modes)
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    assert attempts_used(jobs) == 0


def test_jobs_queue_for_one_slow_slot_and_none_fails_for_it() -> None:
    jobs = finished(1, SLOW, one_tenant)
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    assert attempts_used(jobs) == 0


def test_a_burst_over_all_lanes_uses_up_no_attempt() -> None:
    jobs = finished(2, SLOW, every_lane)
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    assert attempts_used(jobs) == 0


@pytest.mark.parametrize(
    ("slots", "seconds", "submit"), [(1, SLOW, one_tenant), (2, SLOW, every_lane)]
)
def test_without_the_look_at_the_service_they_time_out(
    slots: int,
    seconds: float,
    submit: Callable[[World], Awaitable[list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Windows, "queued", lambda self, lease_id: False)
    assert attempts_used(finished(slots, seconds, submit)) > 0


def test_a_directive_that_was_lost_is_tried_again_though_its_service_is_busy() -> None:
    """Those that came after it have been taken: it waits behind nothing."""

    async def main(loop: VirtualLoop) -> tuple[Job, float]:
        services = [Timed("ocr", SLOW), Timed("embedding", 0), Timed("sis", 0)]
        async with World(loop, services=[*services], slots=8).running() as world:
            lose_first(world)
            lost = await world.submit(number=0)
            await asyncio.sleep(1)
            for number in range(1, 4):
                await world.submit(number=number)
            ended = await world.finished(lost)
            return ended["job"], ended["seconds"]

    job, seconds = run_virtually(main)
    assert job.state is JobState.SUCCEEDED
    assert job.steps[0].used == 1
    assert seconds < 30 + 30 + 60 + 2 * SLOW  # two looks, the backoff, the step itself


def lose_first(world: World) -> None:
    """The bus says that it took the first directive, and nobody ever sees it."""
    publish, lost = world.bus.publish, False

    async def publish_but_one(topic: str, messages: list[Message]) -> None:
        nonlocal lost
        if not lost and messages[0].properties["type"] == "DIRECTIVE":
            lost = True
            messages = messages[1:]
        await publish(topic, messages)

    world.bus.publish = publish_but_one  # type: ignore[method-assign,assignment]


def test_a_service_that_is_silent_times_out_as_ever() -> None:
    async def main(loop: VirtualLoop) -> Job:
        async with World(loop, services=[Timed("sis", 0)], slots=1).running() as world:
            job_id = await world.submit(number=0)
            await asyncio.sleep(40)
            job = await world.engine.job(job_id)
            assert job is not None
            return job

    job = run_virtually(main)
    assert job.steps[0].used == 1
    assert job.steps[0].fault is not None
    assert job.steps[0].fault.code == "ACK_TIMEOUT"
