"""What a process of a service says about itself: ready while all it depends on is well, and its counts."""

import asyncio
from collections.abc import Mapping

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.health import health_app
from lucius.app.settings import load_settings
from lucius.app.standalone import checks_of, slots_now
from lucius.core.errors import BusUnavailableError, WorkspaceError
from lucius.platform import ServiceRunner
from lucius.platform.bodies import ServiceInstruments
from lucius.platform.service import DependencyCheck
from tests.platform.bench import Writer


class Dependent(Writer):
    """Needs a model server, which is as well as it is said to be."""

    well = True

    def checks(self) -> Mapping[str, DependencyCheck]:
        return {"models": self._models}

    async def _models(self) -> None:
        if not self.well:
            raise ConnectionRefusedError("the model server does not answer")


async def test_a_process_is_ready_while_bus_workspace_and_dependencies_are_well() -> None:
    settings = load_settings({"LUCIUS_WORKSPACE_URL": "mem://jobs"})
    service, bus, workspace = Dependent(), MemoryBus(), MemoryWorkspace()
    runner = ServiceRunner(service, bus, workspace)
    checks = checks_of(service, [runner], workspace, settings)
    app = httpx.ASGITransport(health_app(checks, CollectorRegistry()))

    async def said() -> tuple[int, dict[str, str]]:
        async with httpx.AsyncClient(transport=app, base_url="http://service") as client:
            answer = await client.get("/readyz")
        return answer.status_code, answer.json()["checks"]

    well = {"bus": "ok", "workspace": "ok", "service models": "ok"}
    assert await said() == (200, well)
    service.well = False
    assert await said() == (503, well | {"service models": "failed"})
    service.well = True
    workspace.fail_with(WorkspaceError("the disk is gone"))
    assert await said() == (503, well | {"workspace": "failed"})
    workspace.fail_with(None)
    bus.fail_with(BusUnavailableError("away"))
    await runner.start()
    while runner.health().outage is None:  # noqa: ASYNC110 - the receiver says nothing else
        await asyncio.sleep(0)
    assert await said() == (503, well | {"bus": "failed"})
    bus.fail_with(None)
    await runner.stop()
    await bus.close()


def test_slots_and_attempts_are_metrics() -> None:
    async def found() -> str:
        runner = ServiceRunner(Writer(), MemoryBus(), MemoryWorkspace(), slots=3)
        counts, registry = ServiceInstruments(), CollectorRegistry()
        counts.register(registry)
        counts.slots.show(slots_now(Writer(), [runner]))
        counts.attempts.add("ocr", "SUCCEEDED", "")
        return generate_latest(registry).decode()

    page = asyncio.run(found())
    assert 'lucius_service_slots{service="ocr",state="free"} 3.0' in page
    assert 'lucius_service_attempts_total{code="",service="ocr",status="SUCCEEDED"} 1.0' in page


@pytest.mark.parametrize("commit", [True, False])
def test_a_service_without_outputs_needs_no_workspace(commit: bool) -> None:
    service = Writer()
    service.commit = commit
    checks = checks_of(service, [], MemoryWorkspace(), load_settings({}))
    assert ("workspace" in checks) == commit
