"""How many messages a three-step job takes over the bus, processes apart, and how long they are.

The numbers of the scale page are these. Lengths are those that the SDK of Service Bus sends.
"""

import asyncio
from collections.abc import Sequence
from functools import cache
from math import ceil

import pytest
from azure.servicebus import ServiceBusMessageBatch

from lucius.adapters.buses.service_bus.wire import outgoing
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.access import ReplyTokens
from lucius.core.job import JobState
from lucius.http.tokens import CallbackTokens
from lucius.platform import Output, Service, Task
from lucius.ports.bus import Message
from tests.engine.apart import Apart, Broker
from tests.virtual import VirtualLoop, run_virtually
from tools.scale import Requests, read

JOBS = 20
ROUNDED = 50
"""Bytes: the file says the length of a message so roughly."""
REPLY_TOKENS = ReplyTokens(
    CallbackTokens({"k1": b"0123456789abcdef"}),
    "http://lucius-orchestrator.lucius.svc:8700",
    required=True,
)


class Staging(Service):
    """It writes an output, as a real service does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.step_types = (name.upper(),)

    async def execute(self, task: Task) -> Output:
        await task.stage("output.json", b"{}")
        return Output(name="output.json")


class Overheard(Broker):
    """It keeps what goes over it."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        self.messages += messages
        await super().publish(topic, messages)


@cache
def overheard() -> tuple[Message, ...]:
    bus = Overheard()

    async def main(loop: VirtualLoop) -> None:
        services: list[Service] = [Staging(name) for name in ("ocr", "embedding", "sis")]
        world = Apart(
            loop,
            bus=bus,
            services=services,
            decorate=REPLY_TOKENS.decorate,
            workspace=MemoryWorkspace(""),
        )
        async with world.running():
            for name in ("owner-1", "owner-2"):
                await world.owner(name)
            await asyncio.sleep(30)
            orchestrator = await world.orchestrator("asks-1")
            for number in range(JOBS):
                job_id = await world.submit(orchestrator, number=number)
                job = await world.ended(orchestrator, job_id)
                assert job.state is JobState.SUCCEEDED

    run_virtually(main)
    return tuple(bus.messages)


def of_type(*kinds: str) -> list[Message]:
    return [each for each in overheard() if each.properties["type"] in kinds]


def length(message: Message) -> int:
    batch = ServiceBusMessageBatch(max_size_in_bytes=2**20)
    batch.add_message(outgoing(message))
    return batch.size_in_bytes


def average(messages: Sequence[Message]) -> int:
    mean = sum(length(each) for each in messages) / len(messages)
    return ROUNDED * ceil(mean / ROUNDED)


def test_a_job_takes_one_message_for_each_directive_and_reply_and_one_nudge() -> None:
    asked: Requests = read().requests
    counts = [len(of_type(*kinds)) / JOBS for kinds in (("DIRECTIVE",), ("ACK", "RESULT"))]
    assert counts == [asked.directives, asked.replies]
    assert len(of_type("NUDGE")) / JOBS == asked.nudges
    assert len(overheard()) == JOBS * (asked.directives + asked.replies + asked.nudges)


@pytest.mark.parametrize(
    ("kinds", "name"),
    [(("DIRECTIVE",), "directive_bytes"), (("ACK", "RESULT", "NUDGE"), "reply_bytes")],
)
def test_messages_are_as_long_as_the_scale_page_says(kinds: tuple[str, ...], name: str) -> None:
    assert average(of_type(*kinds)) == getattr(read().requests, name)
