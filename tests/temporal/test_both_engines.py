"""One script on both engines: rows, events and messages on the wire are the same, but for ids and times."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.app.runtime import Runtime
from lucius.core.inputs import CancelRequested, PauseRequested, ResumeRequested
from lucius.core.job import Job, JobState, StepState
from lucius.platform import Output, Service, Task
from tests.temporal.server import shared_server
from tests.temporal.world import (
    SERVICES,
    Recording,
    Scripted,
    ended,
    envelope,
    events_of,
    running,
    settings_of,
    submitted,
)

pytestmark = pytest.mark.xdist_group("temporal")

PLAIN: dict[str, dict[str, Any]] = {
    "three steps succeed": envelope(),
    "a step is retried": envelope(beta={"fails": 2}),
    "all attempts of a step fail": envelope(beta={"fails": 3}),
    "a step fails for good": envelope(alpha={"final": True}),
    "two steps run together": envelope("TOGETHER"),
    "one of two that run together fails": envelope("TOGETHER", beta={"fails": 3}),
}
CHANGING = {
    "jobId",
    "correlation_id",
    "lease_id",
    "callback_token",
    "workspace_ref",
    "effect_key",
    "timestamp",
    "worker_id",
    "traceparent",
    "message_key",
}
OF_ITS_OWN = {"engine", "version", "due_at", "exec_id", "lease_owner", "updated_at"} | CHANGING
"""What the API shows that differs from one job to the next, or says which engine has it."""

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def said(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in CHANGING}


def messages(bus: Recording) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """By step and kind: parallel steps come in any order. Heartbeats come with time."""
    found = [
        (topic, str(message.body.get("stepId")), said(message.body), said(message.properties))
        for topic, message in bus.published
        if message.body.get("type") in ("DIRECTIVE", "ACK", "RESULT")
    ]
    return sorted(found, key=lambda each: (each[1], each[2]["attempt_no"], each[2]["type"]))


def rows(job: Job) -> dict[str, Any]:
    return {
        "state": job.state,
        "fault": job.fault,
        "output": job.final_output,
        "steps": [
            (
                step.state,
                step.attempt_no,
                step.used,
                step.fault,
                step.result_ref,
                step.entry.state if step.entry else None,
                [(e.attempt_no, e.state, e.reason, e.final) for e in step.executions],
            )
            for step in job.steps
        ],
    }


def plain(shown: Any) -> Any:
    """Of moments, only whether they have come."""
    if isinstance(shown, list):
        return [plain(each) for each in shown]
    if not isinstance(shown, dict):
        return MOMENT.sub("then", shown) if isinstance(shown, str) else shown
    kept = {name: value for name, value in shown.items() if name not in OF_ITS_OWN}
    return {
        name: value is not None if name.endswith("_at") else plain(value)
        for name, value in kept.items()
    }


async def shown(runtime: Runtime, job_id: str) -> list[Any]:
    """What a client is answered."""
    transport = httpx.ASGITransport(runtime.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        paths = (f"/v1/jobs/{job_id}{part}" for part in ("", "/steps", "/executions"))
        answers = [await client.get(path) for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    return [plain(answer.json()) for answer in answers]


async def told(runtime: Runtime, job_id: str) -> dict[str, list[Any]]:
    """By machine and step, every move in order, and what events say besides."""
    found: dict[str, list[Any]] = {}
    for event in await events_of(runtime, job_id):
        for move in event.moves:
            subject, _, arrow = move.rpartition(" ")
            found.setdefault(subject, []).append(arrow)
        if event.data and "fault" in event.data:
            found.setdefault(f"data {event.step_id}", []).append(said(event.data))
    return found


async def story(folder: Path, command: dict[str, Any], *, temporal: bool) -> Any:
    settings = settings_of(folder, shared_server() if temporal else None)
    async with running(settings) as (runtime, bus):
        job_id = await submitted(runtime, command)
        job = await ended(runtime, job_id)
        assert job.plan.engine == ("temporal" if temporal else "outbox")
        return await looked(runtime, bus, job)


async def looked(runtime: Runtime, bus: Recording, job: Job) -> tuple[Any, ...]:
    """Its rows, its events, its messages, and what the API shows of it."""
    job_id = job.job_id
    return rows(job), await told(runtime, job_id), messages(bus), await shown(runtime, job_id)


@pytest.mark.parametrize("what", PLAIN)
async def test_one_script_leaves_the_same_rows_events_and_messages(
    what: str, tmp_path: Path
) -> None:
    await shared_server().client()
    on_outbox = await story(tmp_path / "outbox", PLAIN[what], temporal=False)
    on_temporal = await story(tmp_path / "temporal", PLAIN[what], temporal=True)
    for left, right in zip(on_outbox, on_temporal, strict=True):
        assert left == right


# -- control -----------------------------------------------------------------------------------


class Gated(Service):
    """Waits until it is let go."""

    commit = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.step_types = (name.upper(),)
        self.began, self.gate = asyncio.Event(), asyncio.Event()

    async def execute(self, task: Task) -> Output:
        self.began.set()
        await self.gate.wait()
        return Output({"uri": f"mem://out/{self.name}"})


async def controlled(folder: Path, control: str, *, temporal: bool) -> Any:
    settings = settings_of(folder, shared_server() if temporal else None)
    first = Gated("alpha")
    services = [first, *(Scripted(name) for name in SERVICES[1:])]
    async with running(settings, services) as (runtime, bus):
        engine, job_id = runtime.engine, await submitted(runtime, envelope())
        await asyncio.wait_for(first.began.wait(), 60)
        received = CancelRequested() if control == "cancel" else PauseRequested()
        await engine.apply(job_id, received)
        first.gate.set()
        if control == "pause":
            await until(runtime, job_id, JobState.PAUSED)
            await engine.apply(job_id, ResumeRequested())
        return await looked(runtime, bus, await ended(runtime, job_id))


async def until(runtime: Runtime, job_id: str, state: JobState) -> None:
    job = await runtime.engine.job(job_id)
    while job is not None and job.state is not state:
        job = await runtime.engine.wait(job_id, job.version, 60)


@pytest.mark.parametrize(("control", "state"), [("cancel", "CANCELLED"), ("pause", "SUCCEEDED")])
async def test_control_does_the_same_on_both(control: str, state: str, tmp_path: Path) -> None:
    await shared_server().client()
    on_outbox = await controlled(tmp_path / "outbox", control, temporal=False)
    on_temporal = await controlled(tmp_path / "temporal", control, temporal=True)
    assert on_temporal[0]["state"] == state
    for left, right in zip(on_outbox, on_temporal, strict=True):
        assert left == right


async def test_step_0_is_pending_until_its_attempt_is_recorded(tmp_path: Path) -> None:
    """Nobody has started the workflow: there is no server. The job waits, and is started later."""
    settings = settings_of(tmp_path, None, LUCIUS_TEMPORAL_ENABLED="true")
    settings = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    async with running(settings) as (runtime, bus):
        job = await runtime.engine.job(await submitted(runtime, envelope()))
        assert job is not None
        assert job.state is JobState.QUEUED
        assert [step.state for step in job.steps] == [StepState.PENDING] * 3
        assert [owed.kind for owed in job.owed] == ["start_workflow"]
        assert not bus.published
