"""Where the ledger and Temporal contradict each other, and what has one right answer.

A workflow whose job has ended is told so. A live job whose workflow has ended is only reported: somebody has
terminated it, and who knows why decides.
"""

from collections.abc import AsyncIterator
from typing import Final

from lucius.core.effects import SignalWorkflow
from lucius.core.job import Job
from lucius.core.states import TERMINAL_JOB, JobState
from lucius.core.turn import WAKE
from lucius.engines.temporal.starter import owes_start
from lucius.ports.ledger import Drift, JobQuery, Ledger
from lucius.ports.workflows import Workflows

LIVE: Final = tuple(state for state in JobState if state not in TERMINAL_JOB)
PAGE: Final = 500


class WorkflowDrift:
    def __init__(self, workflows: Workflows, ledger: Ledger) -> None:
        self._workflows = workflows
        self._ledger = ledger

    async def found(self) -> list[Drift]:
        """Everything that the two say differently of a job."""
        drifts = [drift async for drift in self._of_workflows()]
        async for job in self._live():
            drift = await self._of_job(job)
            if drift is not None:
                drifts.append(drift)
        return drifts

    async def repair(self) -> int:
        """Tell the workflows of ended jobs. How many there were."""
        told = 0
        async for job_id in self._workflows.running():
            job = await self._ledger.load(job_id)
            if job is not None and job.terminal and not job.owed:
                await self._workflows.signal(job, SignalWorkflow("repair", WAKE, ""))
                told += 1
        return told

    async def _of_workflows(self) -> AsyncIterator[Drift]:
        async for job_id in self._workflows.running():
            job = await self._ledger.load(job_id)
            if job is not None and (not job.terminal or job.owed):
                continue
            if not await self._workflows.is_running(job_id):
                continue
            if job is None:
                yield Drift("workflow_without_job", job_id, "a workflow runs, and there is no job")
            else:
                said = f"the job is {job.state.value}, and its workflow runs"
                yield Drift("workflow_running", job_id, said)

    async def _live(self) -> AsyncIterator[Job]:
        cursor: str | None = None
        while True:
            page = await self._ledger.list(JobQuery(states=LIVE, limit=PAGE, cursor=cursor))
            for job in page.jobs:
                if job.plan.on_temporal:
                    yield job
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _of_job(self, job: Job) -> Drift | None:
        if await self._workflows.is_running(job.job_id):
            return None
        now = await self._ledger.load(job.job_id)
        if now is None or now.terminal:
            return None
        if owes_start(now):
            said = "its workflow is not started yet; an orchestrator will"
            return Drift("workflow_not_started", job.job_id, said)
        said = f"the job is {now.state.value}, and its workflow has ended: cancel the job or redrive it"
        return Drift("workflow_ended", job.job_id, said)
