"""The packaged services, running on local files, and a way to give them one step at a time."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.workspaces.local import LocalWorkspace
from lucius.core.routing import reply_topic
from lucius.core.wire import directive_properties
from lucius.platform import Service, ServiceRunner
from lucius.platform.isolation.forks import ForkServer
from lucius.ports.bus import Message, Subscription
from lucius.ports.workspace import Workspace
from lucius.services import Embedding, Ocr, Sis

EXAMPLES = Path(__file__).parents[2] / "src/lucius/cli/examples"
SAMPLE = EXAMPLES / "sample.pdf"
SCAN = EXAMPLES / "scan.pdf"
REPLIES = reply_topic(0)


def packaged() -> list[Service]:
    return [Ocr(), Embedding(), Sis()]


class Stage:
    def __init__(
        self,
        folder: Path,
        services: Sequence[Service] | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        self.folder = folder
        self.services = packaged() if services is None else services
        self.bus = MemoryBus()
        self._workspace = workspace
        self._stack = AsyncExitStack()
        self._steps = 0

    async def __aenter__(self) -> "Stage":
        await self.bus.ensure([Subscription(REPLIES, REPLIES)])
        workspace = self._workspace or local_workspace(self.folder)
        forks = ForkServer()
        self._stack.push_async_callback(forks.close)
        for service in self.services:
            runner = ServiceRunner(service, self.bus, workspace, forks=forks)
            await runner.start()
            self._stack.push_async_callback(runner.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await self.bus.close()

    async def step(self, step_type: str, **fields: Any) -> dict[str, Any]:
        """The RESULT of one attempt. Each call has a lease of its own."""
        await self.begin(step_type, **fields)
        return await self.result()

    async def begin(self, step_type: str, **fields: Any) -> None:
        self._steps += 1
        body = {
            "jobId": "job_1",
            "stepId": step_type.lower(),
            "tenant_id": "tenant_a",
            "step_type": step_type,
            "service": step_type.lower(),
            "attempt_no": 1,
            "lease_id": f"l{self._steps}",
            "mode": "DEFAULT",
            "lane": 0,
            "routing_key_used": "tenant_a",
            "reply_topic": REPLIES,
            "input_ref": SAMPLE.as_uri(),
            "payload": {},
        } | fields
        body |= {"workspace_ref": f"{self.folder.as_uri()}/jobs/{body['jobId']}/"}
        message = Message(f"{step_type}{self._steps}", body, directive_properties(body))
        await self.bus.publish("global-bus-p0", [message])

    async def result(self) -> dict[str, Any]:
        while True:
            for delivery in await self.bus.receive(REPLIES, [REPLIES], 1, timedelta(seconds=10)):
                await self.bus.complete(delivery)
                if delivery.message.body["type"] == "RESULT":
                    return dict(delivery.message.body)

    async def on(self, content: bytes, step_type: str = "OCR", **fields: Any) -> dict[str, Any]:
        """A step of a job of its own, on a document with this content."""
        name = f"document_{self._steps}"
        (self.folder / name).write_bytes(content)
        uri = (self.folder / name).as_uri()
        return await self.step(step_type, jobId=f"job_of_{name}", input_ref=uri, **fields)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def output(self, result: dict[str, Any]) -> str:
        """What stands behind the reference of a RESULT."""
        assert result["status"] == "SUCCEEDED", result
        return Path(result["output_ref"]["uri"].removeprefix("file://")).read_text()


def local_workspace(folder: Path) -> LocalWorkspace:
    return LocalWorkspace(folder / "jobs", readable=[EXAMPLES], writable=[folder])


def failure(result: dict[str, Any]) -> tuple[str, str]:
    """Status and code, where there is an error at all."""
    return result["status"], (result.get("error") or {}).get("code", "")
