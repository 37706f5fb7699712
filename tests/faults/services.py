"""The services of the failure modes: one on the real kit, and one that a test moves by hand."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lucius.core.routing import directive_topics
from lucius.core.wire import message_id
from lucius.engine.replies import PATIENCE
from lucius.platform import CommitRecord, Commits, Output, Service, Task
from lucius.platform.commit import record_uri
from lucius.platform.messages import Directive
from lucius.platform.records import MINE, Begun, MemoryRecords
from lucius.platform.task import Staged
from lucius.ports.bus import Bus, Message, Subscription

TOPICS = (*directive_topics("shared"), *directive_topics("isolated"))
DAY = 86_400.0
LONG = 7_200.0
"""Seconds in which every clock of a step would have run out."""


class Scribe(Service):
    """Stages a text that names its attempt, after as many seconds as it is told (then at once)."""

    def __init__(self, name: str = "ocr", *seconds: float) -> None:
        self.name = name
        self.step_types = (name.upper(),)
        self._seconds = list(seconds)
        self.begun: list[int] = []

    async def execute(self, task: Task) -> Output | None:
        self.begun.append(task.attempt_no)
        await asyncio.sleep(self._seconds.pop(0) if self._seconds else 0)
        await task.stage("output.txt", f"by attempt {task.attempt_no}")
        return None


class Puppet:
    """A service that does nothing by itself."""

    def __init__(self, bus: Bus, name: str = "ocr") -> None:
        self._bus = bus
        self._name = name

    async def start(self) -> "Puppet":
        filters = {"step_type": (self._name.upper(),)}
        await self._bus.ensure([Subscription(topic, self._name, filters) for topic in TOPICS])
        return self

    async def take(self, within: float = DAY) -> Mapping[str, Any]:
        """The next directive."""
        (delivery,) = await self._bus.receive(self._name, TOPICS, 1, timedelta(seconds=within))
        await self._bus.complete(delivery)
        return delivery.message.body

    async def perhaps(self, within: float) -> Mapping[str, Any] | None:
        """The next directive, if one comes so soon."""
        wait = timedelta(seconds=within)
        for delivery in await self._bus.receive(self._name, TOPICS, 1, wait):
            await self._bus.complete(delivery)
            return delivery.message.body
        return None

    async def idle(self, seconds: float) -> bool:
        """No directive comes for so long."""
        return not await self._bus.receive(self._name, TOPICS, 1, timedelta(seconds=seconds))

    async def say(self, directive: Mapping[str, Any], kind: str, **fields: Any) -> None:
        """Reply, and let the reply arrive."""
        names = ("jobId", "stepId", "attempt_no", "lease_id")
        bound = {name: directive[name] for name in names}
        job_id, step_id, attempt_no, lease_id = bound.values()
        properties = {"type": kind, "jobId": job_id}
        name = message_id(job_id, step_id, attempt_no, lease_id, kind)
        message = Message(name, {"type": kind, **bound, **fields}, properties)
        await self._bus.publish(directive["reply_topic"], [message])
        await asyncio.sleep(0.01 + (PATIENCE.total_seconds() if kind == "ACK" else 0))

    async def ack(self, directive: Mapping[str, Any]) -> None:
        await self.say(directive, "ACK", worker_id="puppet")

    async def succeed(self, directive: Mapping[str, Any]) -> None:
        output = f"mem://out/{directive['stepId']}/{directive['attempt_no']}"
        await self.say(directive, "RESULT", status="SUCCEEDED", output_ref=output)


# -- guards of the kit, taken out ------------------------------------------------------------


class NoCommitRecord(Commits):
    """The last to commit wins, and nobody looks for a record first."""

    async def find(self, directive: Directive) -> CommitRecord | None:
        return None

    async def commit(
        self, directive: Directive, worker_id: str, output: Output, staged: Mapping[str, Staged]
    ) -> tuple[CommitRecord, int]:
        record = self._proposal(directive, worker_id, output, tuple(staged.values()))
        await self._workspace.write(record_uri(directive), record.encoded())
        return record, 0


class NoRecords(MemoryRecords):
    """Every delivery is taken for new work."""

    async def begin(self, directive: Directive, owner: str) -> Begun:
        return MINE
