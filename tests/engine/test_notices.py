"""Workers of their own processes hear over the bus that their job is being cancelled."""

import asyncio
from collections.abc import Sequence
from typing import Any

from lucius.core.errors import BusUnavailableError
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.platform import Output, Service, Task
from lucius.ports.bus import Message
from tests.engine.apart import Apart, Broker, Process
from tests.virtual import VirtualLoop, run_virtually


class Patient(Service):
    """Works until its job is cancelled."""

    name = "ocr"
    step_types = ("OCR",)
    commit = False

    def __init__(self) -> None:
        self.at_work: list[str] = []
        self.begun = asyncio.Condition()

    async def execute(self, task: Task) -> Output:
        async with self.begun:
            self.at_work.append(task.job_id)
            self.begun.notify_all()
        await task.until_cancelled()
        task.check_cancelled()
        raise AssertionError("it was cancelled")

    async def until(self, count: int) -> None:
        async with self.begun:
            await self.begun.wait_for(lambda: len(self.at_work) >= count)


class Losing(Broker):
    """Loses what it is told to lose."""

    def __init__(self) -> None:
        super().__init__()
        self.notices_to_lose = 0
        self.loses_heartbeats = False

    async def send_notice(self, address: str, message: Message) -> None:
        if self.notices_to_lose:
            self.notices_to_lose -= 1
            raise BusUnavailableError("the notice is lost")
        await super().send_notice(address, message)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        if self.loses_heartbeats:
            messages = [m for m in messages if m.properties.get("type") != "HEARTBEAT"]
        await super().publish(topic, messages)


async def cancel(process: Process, job_id: str, **options: Any) -> None:
    await process.parts.engine.apply(job_id, CancelRequested(**options))


def told(story: Any, slots: int = 25) -> None:
    """Run a story with one owner, one orchestrator that sends notices, and a service that waits."""

    async def main(loop: VirtualLoop) -> None:
        service, bus = Patient(), Losing()
        apart = Apart(loop, bus=bus, services=[service], slots=slots)
        async with apart.running():
            owner = await apart.owner("owner")
            front = await apart.orchestrator("front")
            sending = asyncio.create_task(front.parts.notices.run())
            try:
                await story(apart, owner, front, service)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    run_virtually(main)


async def begun(apart: Apart, front: Process, service: Patient, number: int = 1) -> str:
    job_id = await apart.submit(front, request_type="OCR", payload={}, number=number)
    await service.until(number)
    return job_id


async def acknowledged(process: Process, job_id: str) -> Job:
    job = await process.parts.engine.job(job_id)
    while job is not None and job.first_ack_at is None:
        job = await process.parts.engine.wait(job_id, job.version, 60)
    assert job is not None
    return job


def test_a_worker_hears_at_once_that_its_job_is_being_cancelled() -> None:
    async def story(apart: Apart, owner: Process, front: Process, service: Patient) -> None:
        job_id = await begun(apart, front, service)
        await acknowledged(owner, job_id)
        before = apart.loop.time()
        await cancel(front, job_id)
        job = await apart.ended(owner, job_id)
        assert job.state == "CANCELLED"
        assert apart.loop.time() == before, "long before its heartbeat"

    told(story)


def test_a_worker_that_acknowledges_after_the_cancellation_is_told_then() -> None:
    async def story(apart: Apart, owner: Process, front: Process, service: Patient) -> None:
        first = await begun(apart, front, service)
        await acknowledged(owner, first)
        second = await apart.submit(front, request_type="OCR", payload={}, number=2)
        await asyncio.sleep(1)
        await cancel(front, second)
        job = await front.parts.engine.job(second)
        assert job is not None
        assert job.state == "CANCELLING", "its directive is out, and nobody has it yet"
        await cancel(front, first)
        ended = await apart.ended(owner, second)
        assert (ended.state, service.at_work) == ("CANCELLED", [first, second])
        assert ended.steps[0].attempt_no == 1
        assert apart.loop.time() < 30, "long before its heartbeat"

    told(story, slots=1)


def test_a_worker_whose_notice_was_lost_is_told_with_its_heartbeat() -> None:
    async def story(apart: Apart, owner: Process, front: Process, service: Patient) -> None:
        job_id = await begun(apart, front, service)
        await acknowledged(owner, job_id)
        assert isinstance(apart.bus, Losing)
        apart.bus.notices_to_lose = 1
        await cancel(front, job_id)
        job = await apart.ended(owner, job_id)
        assert apart.bus.notices_to_lose == 0
        assert job.state == "CANCELLED"
        assert 299 < apart.loop.time() < 302, "a third of its lease of 900 s"

    told(story)


def test_a_worker_of_a_job_that_was_cancelled_at_once_stops_and_says_nothing() -> None:
    async def story(apart: Apart, owner: Process, front: Process, service: Patient) -> None:
        job_id = await begun(apart, front, service)
        await acknowledged(owner, job_id)
        await cancel(front, job_id, immediate=True)
        await asyncio.sleep(1)
        assert apart.runners[0].health().running == 0
        events = await front.parts.engine.events(job_id, 0, 100)
        assert not [each for each in events if "result" in each.type.lower()]

    told(story)


def test_a_worker_whose_attempt_was_replaced_is_told_with_its_next_heartbeat() -> None:
    async def story(apart: Apart, owner: Process, front: Process, service: Patient) -> None:
        await begun(apart, front, service)
        assert isinstance(apart.bus, Losing)
        apart.bus.loses_heartbeats = True
        await service.until(2)
        assert apart.runners[0].health().running == 2, "the first one knows of nothing"
        apart.bus.loses_heartbeats = False
        await asyncio.sleep(301)
        assert apart.runners[0].health().running == 1

    told(story)
