"""`lucius service run`: a service apart from the server takes steps from the bus, and drains at the end."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from lucius.app import standalone
from lucius.app.standalone import run_service
from lucius.cli.main import main
from lucius.core.plan import Mode
from lucius.platform import Output, Service, Task
from lucius.ports.bus import Bus
from tests.api.live import Live, live


class Waiting(Service):
    """Says when it has begun, and ends when it is told."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self) -> None:
        self.begun, self.told = asyncio.Event(), asyncio.Event()

    async def execute(self, task: Task) -> Output:
        self.begun.set()
        await self.told.wait()
        await task.stage("output.txt", "text")
        return Output(name="output.txt")


class Shared:
    """The server's bus as another process has it: closing it closes that process's end."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self.closed = bus, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def close(self) -> None:
        self.closed = True


async def beside(
    lucius: Live,
    monkeypatch: pytest.MonkeyPatch,
    service: Service,
    meanwhile: Callable[[], Awaitable[None]],
) -> None:
    """Run the service on the bus of a server, until `meanwhile` is over and it gets a SIGTERM."""
    bus = Shared(lucius.runtime.bus)
    monkeypatch.setattr(standalone, "open_bus", lambda settings: cast(Bus, bus))
    settings = lucius.runtime.settings
    work = run_service(settings, service, slots=2, ready=lambda: None)
    running = asyncio.create_task(work)
    await meanwhile()
    async with asyncio.timeout(60):
        await running
    assert bus.closed


async def test_a_service_of_its_own_takes_steps_and_finishes_them_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, output = Waiting(), (tmp_path / "out.txt").as_uri()
    async with live(tmp_path / "data", output_roots=str(tmp_path)) as lucius:

        async def terminated_at_work() -> None:
            job_id = await lucius.accepted(output_ref=output)
            await asyncio.wait_for(service.begun.wait(), 60)
            os.kill(os.getpid(), signal.SIGTERM)
            service.told.set()
            ended = await lucius.runtime.engine.ended(job_id, 60)
            assert ended is not None
            assert ended.state == "SUCCEEDED", "what was under way is finished, not given up"

        await beside(lucius, monkeypatch, service, terminated_at_work)
        late = await lucius.accepted("late")
        (directive,) = await lucius.pull()
        assert directive["jobId"] == late, "nobody else takes work any more"


def test_a_connection_that_names_no_namespace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCIUS_BUS_BACKEND", "servicebus")
    monkeypatch.setenv("LUCIUS_SERVICEBUS_CONNECTION", "x")
    words = ["service", "run", "lucius.services.ocr:Ocr", "--data", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "LUCIUS_SERVICEBUS_CONNECTION is neither a connection string" in result.stderr


@pytest.mark.parametrize("name", ["nowhere:Service", "lucius.services.ocr:Nothing", "json:dumps"])
def test_what_is_no_service_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LUCIUS_BUS_BACKEND", "nats")
    result = CliRunner().invoke(main, ["service", "run", name, "--data", str(tmp_path)])
    assert (result.exit_code, name in result.stderr) == (1, True), result.stderr


async def test_a_service_for_one_mode_takes_nothing_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Waiting()
    service.told.set()
    async with live(
        tmp_path / "data", lane_topology="filtered", output_roots=str(tmp_path)
    ) as lucius:
        bus = Shared(lucius.runtime.bus)
        monkeypatch.setattr(standalone, "open_bus", lambda settings: cast(Bus, bus))
        work = run_service(
            lucius.runtime.settings, service, slots=2, ready=lambda: None, mode=Mode.BURST
        )
        running = asyncio.create_task(work)
        usual = await lucius.accepted("usual", output_ref=(tmp_path / "usual").as_uri())
        burst = await lucius.accepted(
            "burst", mode="BURST", doc_id="d", output_ref=(tmp_path / "burst").as_uri()
        )
        ended = await lucius.runtime.engine.ended(burst, 60)
        assert ended is not None
        assert ended.state == "SUCCEEDED"
        (directive,) = await lucius.pull()
        assert directive["jobId"] == usual
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await running
