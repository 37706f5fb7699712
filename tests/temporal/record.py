"""Records the golden histories: `python -m tests.temporal.record`. Do it only for a new one.

A history that is replaced says that jobs which began before the change could not go on after it.
"""

import asyncio
import json
import socket
import tempfile
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lucius.app import building
from lucius.app.runtime import Runtime
from lucius.app.settings import Settings
from lucius.app.temporal import place_of
from lucius.core.inputs import (
    CancelRequested,
    Input,
    PauseRequested,
    ResultReceived,
    ResultStatus,
    ResumeRequested,
)
from lucius.core.job import Job, JobState, StepState
from lucius.engine.temporal import workflows
from lucius.engine.temporal.invoker import Invoker
from lucius.engine.temporal.worker import run_worker
from lucius.engine.temporal.workflows import TemporalWorkflows, start_of
from lucius.platform import Service
from tests.temporal.server import shared_server
from tests.temporal.test_both_engines import Gated, until
from tests.temporal.test_crashes import LosingAnswers
from tests.temporal.world import SERVICES, Scripted, closed, ended, envelope, running, settings_of

HISTORIES = Path(__file__).parents[1] / "histories"


Steer = Callable[[Runtime, str, Gated], Awaitable[None]]


async def nothing(runtime: Runtime, job_id: str, first: Gated) -> None:
    first.gate.set()


def told(received: Input) -> Steer:
    async def steer(runtime: Runtime, job_id: str, first: Gated) -> None:
        await first.began.wait()
        await runtime.engine.apply(job_id, received)
        first.gate.set()

    return steer


async def paused(runtime: Runtime, job_id: str, first: Gated) -> None:
    await told(PauseRequested())(runtime, job_id, first)
    await until(runtime, job_id, JobState.PAUSED)
    await runtime.engine.apply(job_id, ResumeRequested())


async def held(runtime: Runtime, job_id: str, first: Gated) -> None:
    runtime.outbox.windows.close()
    first.gate.set()
    await moved_to(runtime, job_id, lambda job: job.steps[0].held)
    runtime.outbox.windows.reopen()
    runtime.outbox.releases.pump_all()


async def late(runtime: Runtime, job_id: str, first: Gated) -> None:
    """Nobody acknowledges in time; the success comes in the backoff."""
    waits = StepState.FAILED_RETRY
    job = await moved_to(runtime, job_id, lambda job: job.steps[0].state is waits)
    last = job.steps[0].executions[-1]
    lease = ("alpha", last.attempt_no, last.exec_id)
    done = ResultReceived(*lease, ResultStatus.SUCCEEDED, "mem://late")
    await runtime.engine.apply(job_id, done)


async def moved_to(runtime: Runtime, job_id: str, holds: Callable[[Job], bool]) -> Job:
    job = await runtime.engine.job(job_id)
    while job is not None and not holds(job):
        job = await runtime.engine.wait(job_id, job.version, 60)
    assert job is not None
    return job


SHORT = {"LUCIUS_ACK_TIMEOUT_SECONDS": "0.5", "LUCIUS_MAX_ATTEMPTS": "2"}
STORIES: dict[str, tuple[Steer, dict[str, Any], dict[str, str]]] = {
    "happy": (nothing, {}, {}),
    "retry": (nothing, {"beta": {"fails": 1}}, {}),
    "timeout": (nothing, {}, {**SHORT, "LUCIUS_ACK_BACKOFF_SECONDS": "0.1"}),
    "cancel": (told(CancelRequested()), {}, {}),
    "pause": (paused, {}, {}),
    "held": (held, {}, {}),
    "late_reply": (late, {}, {**SHORT, "LUCIUS_ACK_BACKOFF_SECONDS": "60"}),
    "together": (nothing, {"request_type": "TOGETHER"}, {}),
    "unanswered": (nothing, {}, {}),
    "continued": (nothing, {}, {}),
    "failed_workflow": (nothing, {"beta": {"final": True}}, {}),
    "cancelled_workflow": (told(CancelRequested()), {}, {}),
}
SILENT = ("timeout", "late_reply")


async def losing(settings: Settings, workflows: TemporalWorkflows, invoker: Invoker) -> None:
    """A worker that loses the first answer of each step, so that the server asks again."""
    await run_worker(place_of(settings), LosingAnswers(invoker), workflows.instruments)


def short_start(job: Job, now: datetime) -> dict[str, Any]:
    return {**start_of(job, now), "most_events": 12}


def prepare(name: str, patch: pytest.MonkeyPatch) -> None:
    if name == "unanswered":
        patch.setattr(building, "work", losing)
    if name == "continued":
        patch.setattr(workflows, "start_of", short_start)


async def recorded(name: str) -> str:
    """The history of its first run."""
    steer, steps, environ = STORIES[name]
    server = shared_server()
    client = await server.client()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        prepare(name, patch)
        settings, first = settings_of(Path(folder) / "x", server, **environ), Gated("alpha")
        others = [Scripted(each) for each in SERVICES[1:]]
        services: list[Service] = [*others] if name in SILENT else [first, *others]
        async with running(settings, services) as (runtime, _):
            job_id = (await runtime.engine.submit(envelope(**steps))).job_id
            await asyncio.wait_for(steer(runtime, job_id, first), 60)
            await ended(runtime, job_id)
            handle = client.get_workflow_handle(job_id)
            await closed(handle)
            info = (await handle.describe()).raw_description.workflow_execution_info
            begun = client.get_workflow_handle(job_id, run_id=info.first_run_id)
            return (await begun.fetch_history()).to_json()


PERSONAL = ("identity", "stackTrace")


def impersonal(value: Any) -> Any:
    """Without what names the machine it was recorded on."""
    if isinstance(value, dict):
        kept = {k: impersonal(v) for k, v in value.items() if k not in PERSONAL}
        return kept
    return [impersonal(each) for each in value] if isinstance(value, list) else value


async def main() -> None:
    for name in STORIES:
        path = HISTORIES / f"{name}.json"
        if not path.exists():
            text = (await recorded(name)).replace(socket.gethostname(), "worker")
            history = impersonal(json.loads(text))
            path.write_text(json.dumps(history, indent=1) + "\n")
            print(f"recorded {path}")


if __name__ == "__main__":
    asyncio.run(main())
