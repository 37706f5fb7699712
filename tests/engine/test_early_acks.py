"""An ACK that comes alone waits a moment for its RESULT: then both are one save."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from lucius.core.job import StepState
from lucius.core.routing import directive_topics
from lucius.core.wire import message_id
from lucius.engine import replies
from lucius.engine.replies import PATIENCE, EarlyAcks
from lucius.ports.bus import Message, Subscription
from tests.engine.test_together import CountingLedger
from tests.engine.world import World, envelope
from tests.virtual import VirtualLoop, run_virtually

UNHEARD = (StepState.DISPATCHING, StepState.AWAITING_ACK)
MOMENT = PATIENCE.total_seconds()
Check = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """A job with one directive out, and the bus on which its service answers."""

    def __init__(self, world: World, ledger: CountingLedger, job_id: str) -> None:
        self.world = world
        self.ledger = ledger
        self.job_id = job_id

    async def say(self, kind: str, **fields: Any) -> None:
        job = await self.world.engine.job(self.job_id)
        assert job is not None
        step = next(each for each in job.steps if each.execution is not None)
        assert step.execution is not None
        planned = job.plan.steps[job.steps.index(step)]
        key = (self.job_id, planned.step_id, 1, step.execution.exec_id)
        names = ("jobId", "stepId", "attempt_no", "lease_id")
        body = {"type": kind, **dict(zip(names, key, strict=True)), **fields}
        topic = f"global-bus-replies-p{job.plan.shard}"
        await self.world.bus.publish(topic, [Message(message_id(*key, kind), body, {"type": kind})])

    async def result(self) -> None:
        await self.say("RESULT", status="SUCCEEDED", output_ref="s3://bucket/out")

    async def first(self) -> StepState:
        job = await self.ledger.load(self.job_id)
        assert job is not None
        return job.steps[0].state


def with_one_directive_out(check: Check) -> None:
    async def main(loop: VirtualLoop) -> None:
        ledger = CountingLedger()
        world = World(loop, ledger=ledger)
        topics = directive_topics("shared")
        await world.bus.ensure([Subscription(topic, "all") for topic in topics])
        async with world.running():
            exchange = Exchange(world, ledger, (await world.engine.submit(envelope())).job_id)
            await asyncio.sleep(10)  # until it is recorded as sent
            assert await exchange.first() in UNHEARD
            ledger.saves = 0
            await check(exchange)

    run_virtually(main)


def test_a_result_that_comes_in_time_is_saved_with_its_ack() -> None:
    async def check(exchange: Exchange) -> None:
        await exchange.say("ACK")
        await asyncio.sleep(MOMENT * 0.9)
        assert exchange.ledger.saves == 0
        await exchange.result()
        await asyncio.sleep(MOMENT * 0.05)
        assert await exchange.first() is StepState.SUCCEEDED
        assert exchange.ledger.saves == 1
        types = [event.type for event in await exchange.ledger.events(exchange.job_id, 0, 100)]
        assert types[-3:] == ["ack", "success", "entry_released"]

    with_one_directive_out(check)


def test_an_ack_that_has_waited_counts_from_when_it_came() -> None:
    async def check(exchange: Exchange) -> None:
        came_at = exchange.world.loop.now()
        await exchange.say("ACK")
        await asyncio.sleep(MOMENT * 0.9)
        await exchange.result()
        await asyncio.sleep(MOMENT * 0.05)
        job = await exchange.ledger.load(exchange.job_id)
        assert job is not None
        (execution,) = job.steps[0].executions
        assert execution.started_at is not None
        assert execution.started_at - came_at < PATIENCE / 10
        ended_at = job.steps[0].completed_at
        assert ended_at is not None
        assert ended_at - execution.started_at > PATIENCE / 2, "as long as the work took"

    with_one_directive_out(check)


def test_without_the_patience_they_are_two_saves() -> None:
    async def check(exchange: Exchange) -> None:
        await exchange.say("ACK")
        await asyncio.sleep(MOMENT * 0.9)
        await exchange.result()
        await asyncio.sleep(MOMENT * 0.05)
        assert exchange.ledger.saves == 2

    with patch.object(replies, "PATIENCE", timedelta()):
        with_one_directive_out(check)


def test_the_ack_delay_ends_when_the_ack_comes_not_when_it_is_saved() -> None:
    async def check(exchange: Exchange) -> None:
        heard: list[str] = []
        with patch.object(exchange.world.engine._releases, "mark_answered", heard.append):
            await exchange.say("ACK")
            await asyncio.sleep(MOMENT * 0.2)
        assert len(heard) == 1
        assert exchange.ledger.saves == 0

    with_one_directive_out(check)


def test_an_ack_whose_lease_is_no_text_is_set_aside_and_holds_up_nobody() -> None:
    async def check(exchange: Exchange) -> None:
        await exchange.say("ACK", lease_id=["not", "text"])
        await exchange.say("RESULT", lease_id={}, status="SUCCEEDED")
        await exchange.say("ACK")
        await asyncio.sleep(MOMENT * 3)
        assert await exchange.first() is StepState.IN_PROGRESS

    with_one_directive_out(check)


def test_an_ack_that_came_in_time_is_not_overdue_while_it_waits() -> None:
    async def check(exchange: Exchange) -> None:
        job = await exchange.ledger.load(exchange.job_id)
        assert job is not None
        assert job.due_at is not None
        left = (job.due_at - exchange.world.loop.now()).total_seconds()
        await asyncio.sleep(left - MOMENT / 2)
        await exchange.say("ACK")
        await asyncio.sleep(MOMENT * 3)
        job = await exchange.ledger.load(exchange.job_id)
        assert job is not None
        assert (job.steps[0].state, job.steps[0].used) == (StepState.IN_PROGRESS, 0)

    with_one_directive_out(check)


def test_there_is_one_timer_however_often_the_waiting_ends() -> None:
    async def check(exchange: Exchange) -> None:
        rings = 0

        def due(job_id: str, acks: object) -> None:
            nonlocal rings
            rings += 1

        early = EarlyAcks(due)
        for number in range(100):
            early.wait(f"job_{number}", ())
            early.end()
        assert rings == 100
        timers = [each for each in exchange.world.loop._scheduled if not each._cancelled]  # type: ignore[attr-defined]
        assert not [each for each in timers if "EarlyAcks" in repr(each)]

    with_one_directive_out(check)


def test_where_too_many_wait_none_does() -> None:
    async def check(exchange: Exchange) -> None:
        with patch.object(replies, "BATCH", 1):
            await exchange.say("ACK")
            await asyncio.sleep(MOMENT * 0.2)
        assert await exchange.first() is StepState.IN_PROGRESS

    with_one_directive_out(check)
