"""Fault injection: it breaks what it says, nothing else, and wrong words are refused by name."""

import asyncio
import random
from datetime import timedelta

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.platform import Output, ReplyAnswer, StepCancelledError
from lucius.platform.chaos import (
    CRASHED,
    Chaos,
    ChaoticBody,
    ChaoticBus,
    ChaoticReplies,
)
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.task import Task
from lucius.ports.bus import Message, Subscription
from tests.adapters.test_pull_gateway import directive
from tests.virtual import VirtualLoop, run_virtually

AT_ONCE = timedelta()


async def received(chaos: Chaos, count: int, limit: int) -> list[str]:
    """What comes out of a bus with so many messages, in portions."""
    inner = MemoryBus()
    bus = ChaoticBus(inner, chaos)
    await bus.ensure([Subscription("topic", "me")])
    await bus.publish("topic", [Message(str(n), {"n": n}) for n in range(count)])
    found: list[str] = []
    while portion := await bus.receive("me", ["topic"], limit, AT_ONCE):
        assert len(portion) <= limit, "a runner has no slot for more"
        found += [delivery.message.message_id for delivery in portion]
    await bus.close()
    return found


def test_directives_are_dropped_and_duplicated() -> None:
    assert run_virtually(lambda loop: received(Chaos(), 5, 2)) == ["0", "1", "2", "3", "4"]
    assert run_virtually(lambda loop: received(Chaos(drop=1), 5, 2)) == []
    doubled = run_virtually(lambda loop: received(Chaos(duplicate=1), 3, 3))
    assert doubled == ["0", "1", "2", "0", "1", "2"]


class Counting:
    def __init__(self) -> None:
        self.sent = 0

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        self.sent += 1
        return ReplyAnswer()


@pytest.mark.parametrize(
    ("chaos", "sent"), [(Chaos(), 1), (Chaos(drop=1), 0), (Chaos(duplicate=1), 2)]
)
def test_replies_are_dropped_and_duplicated(chaos: Chaos, sent: int) -> None:
    async def work(loop: VirtualLoop) -> int:
        replies = Counting()
        message = Message("m", {})
        await ChaoticReplies(replies, chaos).send(parse_directive(directive()), message)
        return replies.sent

    assert run_virtually(work) == sent


class Quick:
    """A body that notes when it ran."""

    def __init__(self) -> None:
        self.ran_at: float | None = None

    async def open(self) -> None: ...

    async def __call__(self, task: Task) -> Output | None:
        self.ran_at = asyncio.get_running_loop().time()
        return None

    async def close(self) -> None: ...


def task() -> Task:
    return Task(parse_directive(directive()), {}, MemoryWorkspace(jobs="mem://jobs"))


def test_a_delay_ends_when_the_job_is_cancelled() -> None:
    async def work(loop: VirtualLoop) -> float:
        body, given = Quick(), task()
        loop.call_later(1, given.request_cancel)
        with pytest.raises(StepCancelledError):
            await ChaoticBody(body, Chaos(delay=timedelta(seconds=60)))(given)
        assert body.ran_at is None
        return loop.time()

    assert run_virtually(work) == pytest.approx(1)


def test_a_crash_comes_before_the_work_or_after_it() -> None:
    async def work(loop: VirtualLoop) -> list[tuple[int, bool]]:
        died: list[tuple[int, bool]] = []
        body = Quick()
        chaos = Chaos(crash=1, dice=random.Random(1))
        await ChaoticBody(body, chaos, lambda code: died.append((code, body.ran_at is None)))(
            task()
        )
        return died

    assert run_virtually(work) == [(CRASHED, True), (CRASHED, False)]
