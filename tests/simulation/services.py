"""Services that do what their directive's script says: two on the kit, and one that speaks the wire itself.

A script stands in the payload, so what a service does to an attempt does not depend on who runs it when.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from lucius.core.errors import BusError
from lucius.core.routing import directive_topics
from lucius.platform import Output, Service, Task
from lucius.platform.errors import FatalError, RetryableError
from lucius.ports.bus import Bus, Delivery, Message, Subscription, directive_filters
from tests.simulation.loop import PROCESS

LEASE: Final = 30.0
ACK_TIMEOUT: Final = 6.0
Told = Callable[[str], None]


def deed_of(directive: Mapping[str, Any]) -> str:
    """What to do to this attempt. A redrive goes on where the job before it has stopped."""
    script: list[str] = directive["payload"]["script"].get(directive["stepId"], ["ok"])
    number = directive["attempt_no"] - 1 + 3 * directive.get("redrive_no", 0)
    return script[min(int(number), len(script) - 1)]


class KitService(Service):
    """`commit` is on: each attempt makes an output of its own, and one of them becomes the step's."""

    def __init__(self, name: str, step_type: str, done: Counter[str], told: Told) -> None:
        self.name = name
        self.step_types = (step_type,)
        self._done = done
        self._told = told

    async def execute(self, task: Task) -> Output:
        deed = deed_of(task.directive)
        self._done[f"deed.{deed}"] += 1
        self._told(f"executes {task.job_id[-6:]} {task.step_id} {task.attempt_no} {deed}")
        await asyncio.sleep(
            {"slow": 4.0, "long": 2.2 * LEASE, "beats": 1.1 * LEASE}.get(deed, 0.02)
        )
        if deed == "retry":
            raise RetryableError("try again")
        if deed == "final":
            raise FatalError("it will never work")
        await task.stage(
            "out.txt", f"{task.tenant_id} {task.job_id} {task.step_id} {task.lease_id}"
        )
        return Output()


class RawService:
    """No kit: it keeps nothing, deduplicates nothing, and answers as its script says."""

    name = "gamma"
    step_type = "GAMMA"

    def __init__(
        self, bus: Bus, worker_id: str, slots: int, done: Counter[str], told: Told
    ) -> None:
        self._bus = bus
        self._worker_id = worker_id
        self._slots = asyncio.Semaphore(slots)
        self._done = done
        self._told = told
        self._topics = directive_topics("shared")
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await self._persistently(self._ensure)
        while True:
            await self._slots.acquire()
            found: Sequence[Delivery] = ()
            try:
                found = await self._bus.receive(self.name, self._topics, 1, timedelta(seconds=20))
            except BusError:
                await asyncio.sleep(0.5)
            for delivery in found:
                task = asyncio.create_task(self._answer(delivery))
                self._tasks.add(task)
                task.add_done_callback(self._ended)
            if not found:
                self._slots.release()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._slots.release()

    async def _ensure(self) -> None:
        filters = directive_filters((self.step_type,))
        await self._bus.ensure([Subscription(topic, self.name, filters) for topic in self._topics])

    async def _answer(self, delivery: Delivery) -> None:
        directive = delivery.message.body
        deed = deed_of(directive)
        self._done[f"deed.{deed}"] += 1
        self._told(f"answers {directive['jobId'][-6:]} {directive['attempt_no']} {deed}")
        if deed not in ("silent", "early"):
            await self._say(directive, "ACK")
        await self._quietly(self._bus.complete(delivery))
        await self._do(deed, directive)

    async def _do(self, deed: str, directive: Mapping[str, Any]) -> None:
        match deed:
            case "silent" | "mute":
                return
            case "release":
                await self._say(directive, "RELEASE")
                return
            case "late":
                await asyncio.sleep(1.3 * LEASE)
            case "slow":
                await asyncio.sleep(4.0)
            case "beats":
                for _ in range(4):
                    await asyncio.sleep(LEASE / 3)
                    await self._say(directive, "HEARTBEAT")
            case "other_tenant":
                await self._result(directive, tenant_id="somebody")
        await asyncio.sleep(0.03)
        await self._result(directive, status=_STATUS.get(deed, "SUCCEEDED"))
        if deed == "twice":
            await self._result(directive)
            await self._result(directive, status="FAILED_FINAL")

    async def _result(self, directive: Mapping[str, Any], **fields: Any) -> None:
        ref = f"s3://bucket/out/{directive['jobId']}/{directive['lease_id']}"
        await self._say(directive, "RESULT", **{"status": "SUCCEEDED", "output_ref": ref, **fields})

    async def _say(self, directive: Mapping[str, Any], kind: str, **fields: Any) -> None:
        names = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
        body = {**{name: directive[name] for name in names}, "type": kind}
        body |= {"worker_id": self._worker_id, **fields}
        number = PROCESS.get().steps
        message = Message(
            f"{directive['lease_id']}:{kind}:{number}", body, {"type": kind, "jobId": body["jobId"]}
        )
        await self._persistently(lambda: self._bus.publish(directive["reply_topic"], [message]))

    async def _persistently(self, act: Callable[[], Any]) -> None:
        for _ in range(60):
            try:
                await act()
                return
            except BusError:
                await asyncio.sleep(0.5)

    async def _quietly(self, act: Any) -> None:
        try:
            await act
        except BusError as error:
            self._told(f"not settled: {error}")


_STATUS: Final = {"retry": "FAILED_RETRY", "final": "FAILED_FINAL"}
