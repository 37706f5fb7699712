"""Histories of jobs that ran before are replayed: what has begun goes on after every change."""

import json
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from lucius.engines.temporal.workflow import RECORD, TIMEOUT, JobWorkflow
from tests.temporal.record import HISTORIES, STORIES


def history(name: str) -> WorkflowHistory:
    return WorkflowHistory.from_json(f"job_{name}", (HISTORIES / f"{name}.json").read_text())


@pytest.mark.parametrize("name", STORIES)
async def test_a_recorded_history_is_replayed(name: str) -> None:
    """In the sandbox, so that the workflow is shown to be pure, too."""
    await Replayer(workflows=[JobWorkflow]).replay_workflow(history(name))


@workflow.defn(name="LuciusJob", sandboxed=False)
class Changed(JobWorkflow):
    """Asks for the time first, which no recorded job did."""

    @workflow.run
    async def run(self, start: dict[str, Any]) -> dict[str, Any]:
        self._job = {"jobId": start["jobId"], "tenant_id": start["tenant_id"]}
        await self._ask(TIMEOUT, {})
        return await super().run(start)


async def test_a_change_that_running_jobs_would_not_survive_is_found() -> None:
    with pytest.raises(workflow.NondeterminismError):
        await Replayer(workflows=[Changed]).replay_workflow(history("happy"))


def activities(name: str) -> list[str]:
    events = json.loads((HISTORIES / f"{name}.json").read_text())["events"]
    scheduled = (e.get("activityTaskScheduledEventAttributes") for e in events)
    return [each["activityType"]["name"] for each in scheduled if each]


def test_a_step_costs_one_activity() -> None:
    assert activities("happy") == [RECORD] * 3
