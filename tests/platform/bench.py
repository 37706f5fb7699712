"""A stand-in for the orchestrator: it sends directives to the kit and collects the replies."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.core.routing import directive_topics
from lucius.core.wire import directive_properties, effect_key, message_id
from lucius.platform import Output, Service, ServiceRunner, Task
from lucius.ports.bus import Message, Subscription
from tests.bus_looks import backlog, dead_letters
from tests.virtual import VirtualLoop, run_virtually

REPLIES, WATCHER = "global-bus-replies-p4", "watcher"
TOPIC = "global-bus-p4"
INPUT = "mem://inputs/doc.txt"


class RecordingWorkspace(MemoryWorkspace):
    """Keeps every content that each object ever had."""

    def __init__(self) -> None:
        super().__init__()
        self.history: defaultdict[str, list[bytes]] = defaultdict(list)
        self._there: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def store(self, uri: str, data: bytes) -> None:
        super().store(uri, data)
        self.history[uri].append(data)
        self._there[uri].set()

    async def written(self, uri: str) -> bytes:
        """The object, once it is there."""
        await self._there[uri].wait()
        return self.objects[uri]

    def effects(self, uri: str) -> list[bytes]:
        """The different contents that an object has had, in order."""
        return list(dict.fromkeys(self.history[uri]))


class Writer(Service):
    """Stages a text that differs from attempt to attempt, after as many seconds as it is told."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)
        self.begun: list[int] = []
        self.finished: list[int] = []

    async def execute(self, task: Task) -> Output | None:
        self.begun.append(task.attempt_no)
        await asyncio.sleep(self._seconds.pop(0) if self._seconds else 0)
        await task.stage("output.txt", f"by attempt {task.attempt_no}")
        self.finished.append(task.attempt_no)
        return None


class Bench:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.bus = MemoryBus()
        self.workspace = RecordingWorkspace()
        self.workspace.objects[INPUT] = b"some text"
        self.seen: list[dict[str, Any]] = []
        self.messages: list[Message] = []
        self._came = asyncio.Condition()
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        await self.bus.ensure([Subscription(REPLIES, WATCHER)])
        watching = asyncio.create_task(self._watch())
        self._stack.push_async_callback(self.bus.close)
        self._stack.push_async_callback(_cancelled, watching)

    async def close(self) -> None:
        await self._stack.aclose()

    async def _watch(self) -> None:
        while True:
            try:
                got = await self.bus.receive(WATCHER, [REPLIES], 100, timedelta(hours=1))
            except Exception:
                await asyncio.sleep(0.01)
                continue
            async with self._came:
                for delivery in got:
                    self.messages.append(delivery.message)
                    self.seen.append(dict(delivery.message.body))
                    await self.bus.complete(delivery)
                self._came.notify_all()

    async def runner(self, service: Service, **options: Any) -> ServiceRunner:
        """A started runner, stopped at the end of the test."""
        workspace = options.pop("workspace", self.workspace)
        runner = ServiceRunner(service, self.bus, workspace, **options)
        await runner.start()
        self._stack.push_async_callback(runner.stop)
        return runner

    def directive(self, attempt_no: int = 1, **fields: Any) -> dict[str, Any]:
        job_id = fields.get("jobId", "job_1")
        body = {
            "type": "DIRECTIVE",
            "jobId": job_id,
            "tenant_id": "tenant_a",
            "stepId": "ocr",
            "step_type": "OCR",
            "service": "ocr",
            "attempt_no": attempt_no,
            "lease_id": f"lease_{attempt_no}",
            "input_ref": {"uri": INPUT},
            "workspace_ref": f"mem://lucius/tenant_a/{job_id}/",
            "output_ref": None,
            "payload": {},
            "previous": {},
            "final_step": False,
            "effect_key": effect_key(job_id, "ocr", INPUT, {}),
            "ack_timeout_seconds": 30.0,
            "lease_seconds": 900.0,
            "mode": "DEFAULT",
            "lane": 4,
            "routing_key_used": "tenant_a",
            "reply_topic": REPLIES,
            "correlation_id": "corr-1",
            "traceparent": "00-1-2-00",
        }
        return body | fields

    async def send(self, attempt_no: int = 1, **fields: Any) -> dict[str, Any]:
        body = self.directive(attempt_no, **fields)
        name = message_id(body["jobId"], body["stepId"], attempt_no, body["lease_id"], "DIRECTIVE")
        await self.bus.publish(TOPIC, [Message(name, body, directive_properties(body))])
        return body

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [body for body in self.seen if body["type"] == kind]

    async def replies(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """The first `count` replies of a kind, once they have come."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[:count]

    async def result(self, number: int = 1) -> dict[str, Any]:
        return (await self.replies("RESULT", number))[-1]

    async def dead(self, name: str = "ocr") -> Sequence[tuple[str, str]]:
        letters = await dead_letters(self.bus, name, directive_topics("shared"))
        return [(letter.message.message_id, letter.reason) for letter in letters]

    async def waiting(self, name: str = "ocr") -> int:
        return await backlog(self.bus, name, directive_topics("shared"))


async def kill(runner: ServiceRunner) -> None:
    """The process is gone: nothing is released, nothing is sent."""
    tasks = [*runner._running, runner._receiver]
    for task in tasks:
        if task is not None:
            task.cancel()
    await asyncio.gather(*(task for task in tasks if task), return_exceptions=True)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def on_the_bench(body: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    """A test in virtual time with a bench of its own."""

    async def main(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        await bench.open()
        try:
            await body(bench)
        finally:
            await bench.close()

    def test() -> None:
        run_virtually(main)

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test
