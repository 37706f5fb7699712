"""Every order to a job in every state, over HTTP; what must come of it is read from the job's table."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from lucius.core.inputs import (
    CancelRequested,
    Kind,
    PauseRequested,
    ResultReceived,
    ResultStatus,
)
from lucius.core.job import TERMINAL_JOB, Fault, StepState
from lucius.core.job import JobState as J
from lucius.core.table import JOB, Verdict
from tests.api.world import World, accepted

ORDERS: dict[str, tuple[Kind, str, dict[str, Any]]] = {
    "cancel": (Kind.CANCEL, "/v1/jobs/{}:cancel", {}),
    "cancel at once": (Kind.CANCEL, "/v1/jobs/{}:cancel", {"immediate": True}),
    "pause": (Kind.PAUSE, "/v1/jobs/{}:pause", {}),
    "resume": (Kind.RESUME, "/v1/jobs/{}:resume", {}),
    "redrive": (Kind.REDRIVEN, "/v1/jobs/{}:redrive", {}),
    "dismiss": (Kind.DISMISSED, "/v1/admin/dlq/{}:dismiss", {}),
}
UNMOVED = {(J.CANCELLING, "cancel"), (J.QUEUED, "resume")}
"""Cells that move by another way: cancel at once, and a resume that passes through QUEUED."""
REFUSED = {Kind.REDRIVEN: "NOT_REDRIVABLE", Kind.DISMISSED: "NOT_IN_DLQ"}


async def brought_to(client: httpx.AsyncClient, world: World, state: J) -> str:
    """A job in that state, by the way that a real one takes."""
    job_id = await accepted(client)
    match state:
        case J.QUEUED:
            _plant_queued(world, job_id)
        case J.IN_PROGRESS:
            await _result(world, job_id, ResultStatus.SUCCEEDED)
        case J.PAUSING:
            await world.out(job_id)
            await world.apply(job_id, PauseRequested())
        case J.PAUSED:
            await world.apply(job_id, PauseRequested())
        case J.CANCELLING:
            await world.out(job_id)
            await world.apply(job_id, CancelRequested())
        case J.CANCELLED:
            await world.apply(job_id, CancelRequested())
        case J.SUCCEEDED:
            await _result(world, job_id, ResultStatus.SUCCEEDED)
            await _result(world, job_id, ResultStatus.SUCCEEDED)
        case J.FAILED_FINAL:
            await _result(world, job_id, ResultStatus.FAILED_FINAL)
    assert world.jobs[job_id].state is state
    return job_id


async def _result(world: World, job_id: str, status: ResultStatus) -> None:
    out = await world.out(job_id)
    bound = (out["stepId"], out["attempt_no"], out["lease_id"])
    fault = None if status is ResultStatus.SUCCEEDED else Fault("GONE", "it is gone")
    await world.apply(job_id, ResultReceived(*bound, status, "s3://b/x", fault))


def _plant_queued(world: World, job_id: str) -> None:
    """No stored job is QUEUED, so this one is made by hand."""
    job = world.jobs[job_id]
    steps = tuple(replace(step, state=StepState.PENDING, entry=None) for step in job.steps)
    world.ledger.put(replace(job, state=J.QUEUED, steps=steps))


def expected_code(state: J, kind: Kind) -> str:
    if kind in REFUSED:
        return REFUSED[kind]
    return "JOB_TERMINAL" if state in TERMINAL_JOB else "JOB_CANCELLING"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("state", list(J))
async def test_an_order_does_what_the_table_says_and_repeating_it_is_200(
    client: httpx.AsyncClient, world: World, state: J, order: str
) -> None:
    kind, path, body = ORDERS[order]
    cell = JOB[state][kind]
    job_id = await brought_to(client, world, state)
    before = world.jobs[job_id]
    answer = await client.post(path.format(job_id), json=body)
    if cell.verdict is Verdict.REJECT:
        assert (answer.status_code, answer.json()["code"]) == (409, expected_code(state, kind))
        assert world.jobs[job_id] is before, "a refusal changes nothing"
        return
    after = world.jobs[job_id]
    assert answer.status_code in ((202,) if kind is Kind.REDRIVEN else (200,))
    assert after.state is state or after.state in cell.targets or _via(state, after.state, kind)
    if order == "cancel at once":
        assert after.state is J.CANCELLED
    if kind not in REFUSED:
        moved = after.state is not state
        already = cell.verdict is Verdict.IGNORE or (state, order) in UNMOVED
        assert answer.json()["outcome"] == ("already" if already else "applied")
        assert moved is not already
    again = await client.post(path.format(job_id), json=body)
    assert again.status_code == 200
    assert again.json()["duplicate" if kind is Kind.REDRIVEN else "outcome"] in (True, "already")
    assert world.jobs[job_id] is after, "a repetition changes nothing"


def _via(source: J, target: J, kind: Kind) -> bool:
    """A move of two: a job that was never started resumes through QUEUED."""
    return any(target in JOB[J(middle)][kind].targets for middle in JOB[source][kind].targets)


def test_every_order_is_refused_somewhere_and_taken_somewhere() -> None:
    for kind, _, _ in ORDERS.values():
        verdicts = {JOB[state][kind].verdict for state in J}
        assert Verdict.REJECT in verdicts
        assert verdicts - {Verdict.REJECT}
