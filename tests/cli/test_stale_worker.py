"""A worker of the pull gateway whose heartbeat is refused stops its work at once."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from lucius.app.adapters import open_workspace
from lucius.app.settings import load_settings
from lucius.app.standalone import over_gateway
from lucius.client.plain import PlainClient
from lucius.platform import Output, Service, Task
from lucius.platform.bodies import ServiceInstruments
from lucius.platform.isolation.forks import ForkServer
from tests.adapters.test_pull_gateway import directive


class Endless(Service):
    """Works until it is stopped."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    async def execute(self, task: Task) -> Output:
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        return Output()


class Replacing:
    """A server that has given the attempt to somebody else after its ACK."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._bodies = [body]
        self.heard: list[str] = []

    async def pull(self, service: str, *, limit: int, wait_seconds: float, worker: Any) -> Any:
        if not self._bodies:
            await asyncio.Event().wait()
        return {"directives": [self._bodies.pop()]}

    async def reply(self, service: str, replies: Sequence[Mapping[str, Any]]) -> Any:
        kinds = [str(reply["type"]) for reply in replies]
        self.heard += kinds
        stale = {"status": 409, "code": "STALE_ATTEMPT", "detail": "another attempt is current"}
        return {"outcomes": [{"status": 200} if kind == "ACK" else stale for kind in kinds]}

    async def close(self) -> None: ...


async def test_a_refused_heartbeat_stops_the_work(tmp_path: Path) -> None:
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path)})
    home = f"{settings.workspace_url}/lucius/acme/job_1/"
    server = Replacing({**directive(), "workspace_ref": home, "lease_seconds": 1.0})
    service, forks = Endless(), ForkServer()
    workspace = open_workspace(settings)
    found = over_gateway(
        settings,
        service,
        cast(PlainClient, server),
        workspace,
        forks,
        1,
        None,
        ServiceInstruments(),
    )
    (runner,) = found.runners
    await runner.start()
    async with asyncio.timeout(120):
        await service.stopped.wait()
    await runner.stop()
    await forks.close()
    assert server.heard == ["ACK", "HEARTBEAT"], "and nothing is said about it any more"
