"""Histories of jobs that ran before are replayed: what has begun goes on after every change."""

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from lucius.engine.temporal.workflow import TIMEOUT, JobWorkflow
from tests.temporal.record import HISTORIES, STORIES


def history(name: str, folder: Path = HISTORIES) -> WorkflowHistory:
    return WorkflowHistory.from_json(f"job_{name}", (folder / f"{name}.json").read_text())


RECORDED = sorted(path.relative_to(HISTORIES) for path in HISTORIES.rglob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=str)
async def test_a_recorded_history_is_replayed(path: Path) -> None:
    """In the sandbox, so that the workflow is shown to be pure, too."""
    recorded = history(path.stem, HISTORIES / path.parent)
    await Replayer(workflows=[JobWorkflow]).replay_workflow(recorded)


def test_every_story_has_a_history() -> None:
    assert {path.stem for path in HISTORIES.glob("*.json")} == set(STORIES)


def test_a_question_without_an_answer_is_asked_by_the_server() -> None:
    """Each of the three is asked within the task, and then as an activity."""
    asked = of_kind("ACTIVITY_TASK_SCHEDULED", HISTORIES, "unanswered")
    assert len(asked) == 3


def test_the_history_of_a_long_job_ends_with_a_new_one() -> None:
    assert len(of_kind("WORKFLOW_EXECUTION_CONTINUED_AS_NEW", HISTORIES, "continued")) == 1


def test_a_workflow_ends_as_its_job() -> None:
    for name, kind in (("failed_workflow", "FAILED"), ("cancelled_workflow", "CANCELED")):
        assert len(of_kind(f"WORKFLOW_EXECUTION_{kind}", HISTORIES, name)) == 1
    assert len(of_kind("WORKFLOW_EXECUTION_COMPLETED", HISTORIES)) == 1


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


def of_kind(kind: str, folder: Path, name: str = "happy") -> list[dict[str, Any]]:
    events = json.loads((folder / f"{name}.json").read_text())["events"]
    return [event for event in events if event["eventType"] == f"EVENT_TYPE_{kind}"]


def test_a_step_costs_one_workflow_task_and_one_signal() -> None:
    """What is asked, and the state that is shown, go with the task that a signal brings anyway."""
    assert of_kind("ACTIVITY_TASK_SCHEDULED", HISTORIES) == []
    assert len(of_kind("WORKFLOW_TASK_COMPLETED", HISTORIES)) == 4
    assert len(of_kind("WORKFLOW_EXECUTION_SIGNALED", HISTORIES)) == 3
    shown = [
        event["upsertWorkflowSearchAttributesEventAttributes"]["searchAttributes"]["indexedFields"]
        for event in of_kind("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES", HISTORIES)
    ]
    states = [
        base64.b64decode(each["LuciusState"]["data"]) for each in shown if "LuciusState" in each
    ]
    assert states == [b'"DISPATCHING"', b'"IN_PROGRESS"', b'"SUCCEEDED"']


def test_a_lease_follows_from_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is done again may have heard more: what it asks for then has a lease of its own."""
    run = SimpleNamespace(run_id="01a1e5c4-0623-7b60-aac3-d559adf3b804")
    monkeypatch.setattr(workflow, "info", lambda: run)

    def lease(step_id: str, attempt_no: int, version: int) -> str:
        job = JobWorkflow()
        job._snapshot = {"version": version}
        lease_id: str = job._attempt({"stepId": step_id, "attempt_no": attempt_no})["lease_id"]
        return lease_id

    asked = [("alpha", 1, 0), ("beta", 1, 0), ("alpha", 2, 0), ("alpha", 1, 7)]
    assert lease(*asked[0]) == lease(*asked[0])
    assert len({lease(*each) for each in asked}) == len(asked)
