"""One tenant's row, worker or plan ends no background task, and none of these makes the process unready."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.app.background_tasks import VITAL, BackgroundTasks
from lucius.core.errors import (
    LedgerError,
    LedgerRowUnreadableError,
    LedgerTooNewError,
    LuciusError,
    WorkspaceRefusedError,
)
from lucius.core.job import Job
from lucius.engine.notices import AT_ONCE, Notices
from lucius.engine.observer import Incident, Observer
from lucius.engine.temporal.drift import WorkflowDrift
from lucius.engine.temporal.engine import WorkflowStarter
from lucius.operations.retention import JobWorkspaces
from lucius.ports.bus import Message
from lucius.ports.workflows import Fate
from tests.api.live import live
from tests.insight.ward import Ward
from tests.virtual import VirtualLoop, run_virtually


async def fails() -> None:
    raise OverflowError("date value out of range")


class Told(Observer):
    """Says when a task has failed."""

    def __init__(self) -> None:
        self.failed = asyncio.Event()

    def incident(self, incident: Incident, cause: str) -> None:
        self.failed.set()


async def failing(name: str) -> None:
    """The process is asked whether it is ready while this task is down."""
    told = Told()
    standing = BackgroundTasks(told)
    async with standing.watching({name: fails}):
        await told.failed.wait()
        assert name in standing.down
        await standing.check()


@pytest.mark.parametrize("name", sorted(VITAL))
async def test_a_task_that_moves_jobs_decides_whether_the_process_is_ready(name: str) -> None:
    with pytest.raises(LuciusError, match="OverflowError"):
        await failing(name)


async def test_any_other_task_is_a_warning(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        runtime = lucius.runtime
        others = {name for name in runtime._background() if name not in VITAL}
        assert {"redrives", "failures", "sightings", "pauses"} <= others
        for name in others:
            await failing(name)
        runtime.background_tasks.down["redrives"] = "OverflowError()"
        ready = await lucius.client.get("/readyz")
        causes = (await lucius.client.get("/v1/why")).json()["causes"]
        job_id = await lucius.accepted("one")
        why = (await lucius.client.get(f"/v1/jobs/{job_id}/why")).json()
        runtime.background_tasks.down.clear()
        assert ready.status_code == 200, ready.text
        assert "redrives" in ready.json()["warnings"]["background"]
        assert [cause["cause"] for cause in causes] == ["TASK_FAILS"]
        assert why["cause"] != "ENGINE_DOWN", "no job waits for it"


def test_a_directive_that_cannot_be_rendered_fails_alone() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        async with ward.running("ocr"):
            ward.outbox.dispatcher._decorate = decorate
            loud = await ward.submit(tenant_id="loud")
            quiet = await ward.submit(tenant_id="quiet")
            assert (await ward.ended(quiet)).state == "SUCCEEDED"
            fault = (await ward.job(loud)).steps[0].fault
            assert fault is not None
            assert (fault.code, "cannot be rendered" in fault.message) == ("PUBLISH_REFUSED", True)
            assert not ward.tasks[0].done(), "the reconciler has not ended"

    run_virtually(main)


def decorate(body: dict[str, Any]) -> dict[str, Any]:
    if body["tenant_id"] == "loud":
        raise KeyError("callback_urls")
    return body


class PickyBus:
    """Takes no address with a space, as the library of a broker may not."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.last = asyncio.Event()

    async def send_notice(self, address: str, message: Message) -> None:
        if " " in address:
            raise ValueError("the session id is not valid")
        self.told.append(address)
        if address == "last":
            self.last.set()


async def test_a_worker_whose_id_is_no_address_keeps_no_other_from_its_notice() -> None:
    bus = PickyBus()
    notices = Notices(bus, Observer(), lambda *attempt: (), "here/")  # type: ignore[arg-type]
    running = asyncio.create_task(notices.run())
    heard = asyncio.create_task(bus.last.wait())
    for worker in ("a b", "c", "d e", *("more" for _ in range(AT_ONCE)), "last"):
        notices._send_notice("CANCEL", worker, "t", ("j", "s", 1, "l"))
    await asyncio.wait((running, heard), return_when=asyncio.FIRST_COMPLETED)
    assert not running.done()
    assert bus.told == ["c", *("more" for _ in range(AT_ONCE)), "last"]
    running.cancel()


class Stubborn:
    """One folder cannot be removed."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def remove(self, uri: str) -> None:
        if "loud" in uri:
            raise WorkspaceRefusedError("a mount stands there")
        self.removed.append(uri)


async def test_a_workspace_that_cannot_be_removed_keeps_no_other_from_it() -> None:
    stubborn = Stubborn()
    workspaces = JobWorkspaces(stubborn, "mem://w/", "one")  # type: ignore[arg-type]
    for folder in ("mem://w/loud/", "mem://w/quiet/"):
        await workspaces.remove(folder)
    assert stubborn.removed == ["mem://w/quiet/"]


class Running:
    """Two workflows run: the job of one cannot be read, and the other has none."""

    async def running(self) -> AsyncIterator[str]:
        for job_id in ("job_unreadable", "job_gone"):
            yield job_id

    async def fate(self, job_id: str) -> Fate:
        return Fate.RUNNING


class Unreadable(MemoryLedger):
    error: LedgerError

    async def load(self, job_id: str) -> Job | None:
        if job_id == "job_unreadable":
            raise self.error
        return await super().load(job_id)


def never() -> datetime:
    return datetime.fromtimestamp(0, UTC)


async def at_once(seconds: float) -> None:
    """Nobody waits here."""


@pytest.mark.parametrize(
    "error",
    [
        LedgerRowUnreadableError("job_unreadable", "it is damaged"),
        LedgerTooNewError("a newer version has written it"),
    ],
    ids=["damaged", "newer"],
)
async def test_a_job_that_cannot_be_read_keeps_no_other_workflow_from_repair(
    error: LedgerError,
) -> None:
    ledger = Unreadable()
    ledger.error = error
    drift = WorkflowDrift(Running(), ledger, pause=at_once)  # type: ignore[arg-type]
    assert await WorkflowStarter(Running(), ledger, now=never)._owing("job_unreadable") is None  # type: ignore[arg-type]
    assert [each.subject for each in await drift.found()] == ["job_gone"]
