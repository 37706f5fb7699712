"""Replies that come without a bus: they are as untrusted as any other, and none is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.effects import Event
from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Job, StepState
from lucius.core.routing import directive_topics
from lucius.engine.replies import BATCH, ReplyConsumer
from lucius.ports.bus import Subscription
from tests.engine.world import World, envelope
from tests.virtual import VirtualLoop, run_virtually


class Failing(MemoryLedger):
    """A step's success is not saved, so many times."""

    error: Exception = LedgerUnavailableError("the disk is full")
    times = 0

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        if self.times > 0 and job.steps[0].state is StepState.SUCCEEDED:
            self.times -= 1
            raise self.error
        return await super().save(job, expected, events)


class Exchange:
    """A job with one directive out, and the consumer that the link gives replies to."""

    def __init__(self, world: World, ledger: Failing, job_id: str) -> None:
        self.world = world
        self.ledger = ledger
        self.job_id = job_id

    @property
    def replies(self) -> ReplyConsumer:
        return self.world.outbox.replies

    async def said(self, kind: str, **fields: Any) -> dict[str, Any]:
        """A reply of the service."""
        job = await self.world.engine.job(self.job_id)
        assert job is not None
        execution = job.steps[0].execution
        assert execution is not None
        bound = {"stepId": job.plan.steps[0].step_id, "attempt_no": 1}
        lease = {"lease_id": execution.exec_id}
        return {"type": kind, "jobId": self.job_id, **bound, **lease, **fields}

    async def result(self) -> dict[str, Any]:
        return await self.said("RESULT", status="SUCCEEDED", output_ref="s3://bucket/out")

    async def first(self) -> StepState:
        job = await self.ledger.load(self.job_id)
        assert job is not None
        return job.steps[0].state


def with_one_directive_out(check: Callable[[Exchange], Awaitable[None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, ledger=(ledger := Failing()))
        topics = directive_topics("shared")
        await world.bus.ensure([Subscription(topic, "all") for topic in topics])
        async with world.running():
            exchange = Exchange(world, ledger, (await world.engine.submit(envelope())).job_id)
            await asyncio.sleep(10)  # until it is recorded as sent
            await check(exchange)

    run_virtually(main)


FAULTY: Sequence[Any] = (
    {},
    {"type": "ACK"},
    {"type": "ACK", "jobId": [], "lease_id": {}},
    {"type": ["RESULT"], "jobId": "job"},
    {"type": "RESULT", "jobId": "j" * 100_000},
    {"type": "RESULT", "jobId": "nobody's", "stepId": "s", "attempt_no": 1, "lease_id": "l"},
    {"type": "NUDGE", "jobId": "nobody's"},
    {"type": "HEARTBEAT", "jobId": "?", "stepId": "s", "attempt_no": -1, "lease_id": None},
)


def test_thousands_of_faulty_replies_are_set_aside_some_at_a_time() -> None:
    async def check(exchange: Exchange) -> None:
        flood = [*(FAULTY[number % len(FAULTY)] for number in range(20 * BATCH))]
        assert not exchange.replies.came([*flood, await exchange.result()]), "these are enough"
        most = 0
        waiting = asyncio.create_task(exchange.replies.until_capacity())
        while not waiting.done():
            most = max(most, exchange.replies._open)
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert most < 2 * BATCH, "others have their turn in between"
        assert await exchange.first() is StepState.SUCCEEDED
        assert exchange.replies._open == 0
        assert not exchange.replies._unsorted

    with_one_directive_out(check)


@pytest.mark.parametrize("name", ["lease_id", "jobId", "stepId", "attempt_no"])
def test_a_reply_that_is_forged_moves_nothing(name: str) -> None:
    async def check(exchange: Exchange) -> None:
        before = await exchange.first()
        forged = {**await exchange.result(), name: 7 if name == "attempt_no" else "forged"}
        exchange.replies.came([forged])
        await asyncio.sleep(1)
        assert await exchange.first() is before

    with_one_directive_out(check)


def test_while_the_ledger_is_away_there_is_no_room_and_nothing_is_lost() -> None:
    async def check(exchange: Exchange) -> None:
        exchange.ledger.times = 3
        exchange.replies.came([await exchange.said("ACK"), await exchange.result()])
        await asyncio.sleep(0.01)
        assert not exchange.replies.came([await exchange.said("HEARTBEAT")])
        await exchange.replies.until_capacity()
        await asyncio.sleep(1)
        assert await exchange.first() is StepState.SUCCEEDED
        assert exchange.replies._open == 0

    with_one_directive_out(check)


def test_a_reply_that_fails_for_an_unknown_cause_comes_again() -> None:
    """As it would on a bus, where its lock runs out."""

    async def check(exchange: Exchange) -> None:
        exchange.ledger.error, exchange.ledger.times = RuntimeError("a defect"), 1
        exchange.world.loop.set_exception_handler(lambda loop, context: None)
        exchange.replies.came([await exchange.said("ACK"), await exchange.result()])
        await asyncio.sleep(30)
        assert exchange.replies._open == 0
        assert await exchange.first() is not StepState.SUCCEEDED
        await asyncio.sleep(40)
        assert await exchange.first() is StepState.SUCCEEDED

    with_one_directive_out(check)


def test_a_reply_that_always_fails_comes_no_more_often_than_on_a_bus() -> None:
    async def check(exchange: Exchange) -> None:
        exchange.ledger.error, exchange.ledger.times = RuntimeError("a defect"), 1000
        exchange.world.loop.set_exception_handler(lambda loop, context: None)
        exchange.replies.came([await exchange.said("ACK")])
        await asyncio.sleep(1)
        exchange.replies.came([await exchange.result()])
        await asyncio.sleep(800)  # its lease has not run out
        assert exchange.ledger.times == 990
        assert exchange.replies._open == 0

    with_one_directive_out(check)
