"""Where the ledger and Temporal contradict each other, and what has one right answer.

A workflow that has not heard of something is told, and one that is not there is started. What somebody
has done by hand is only named: who knows why decides.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from lucius.core.effects import SignalWorkflow
from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.job import TERMINAL_JOB, Job, JobState
from lucius.core.retry import WORKFLOW_EFFECTS
from lucius.core.turn import WAKE
from lucius.engine.temporal.engine import owes_start
from lucius.engine.temporal.invoker import snapshot
from lucius.ports.ledger import Drift, JobQuery, Ledger
from lucius.ports.workflows import Fate, Workflows

LIVE: Final = tuple(state for state in JobState if state not in TERMINAL_JOB)
PAGE: Final = 500
LOOK_AGAIN: Final = timedelta(seconds=2)
"""What differs only because a signal or an answer is on its way does not differ so long."""
NOTIFIED: Final = ("workflow_running", "workflow_behind")
STARTED: Final = ("workflow_not_started", "workflow_missing")


class WorkflowDrift:
    def __init__(
        self,
        workflows: Workflows,
        ledger: Ledger,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._workflows = workflows
        self._ledger = ledger
        self._pause = pause

    async def found(self, moved_before: datetime | None = None) -> list[Drift]:
        """Everything that the two say differently of a job, and still say when they are asked again.

        `moved_before`: live jobs that have moved since are passed over, for their workflows run.
        """
        suspects = self._ids(moved_before)
        first = [job_id async for job_id in suspects if await self._of(job_id) is not None]
        if first:
            await self._pause(LOOK_AGAIN.total_seconds())
        again = [await self._of(job_id) for job_id in first]
        return [drift for drift in again if drift is not None]

    async def repair(self, moved_before: datetime | None = None) -> int:
        """Tell and start the workflows for which that is the one right answer. How many there were."""
        mended = 0
        for drift in await self.found(moved_before):
            job = await self._ledger.load(drift.subject)
            if job is not None and drift.kind in NOTIFIED:
                await self._workflows.signal(job, SignalWorkflow("repair", WAKE, ""))
            elif job is not None and drift.kind in STARTED:
                await self._workflows.start(job)
            mended += drift.kind in NOTIFIED + STARTED
        return mended

    async def _ids(self, moved_before: datetime | None) -> AsyncIterator[str]:
        """Of jobs that have not ended, and of workflows that run without one: each once."""
        running = {job_id async for job_id in self._workflows.running()}
        async for job in self._live():
            runs = job.job_id in running
            running.discard(job.job_id)
            moves = runs and moved_before is not None and job.updated_at >= moved_before
            if not moves and (runs or job.plan.on_temporal):
                yield job.job_id
        for job_id in running:
            yield job_id

    async def _live(self) -> AsyncIterator[Job]:
        cursor: str | None = None
        while True:
            page = await self._ledger.list(JobQuery(states=LIVE, limit=PAGE, cursor=cursor))
            for job in page.jobs:
                yield job
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _of(self, job_id: str) -> Drift | None:
        """The job is read last: a workflow that has ended meanwhile has left an ended job."""
        fate = await self._workflows.fate(job_id)
        try:
            job = await self._ledger.load(job_id)
        except (LedgerRowUnreadableError, LedgerTooNewError):
            return None  # the ledger has named it, or a newer version looks after it
        if fate is Fate.RUNNING:
            return await self._of_running(job_id, job)
        if job is None or job.terminal or not job.plan.on_temporal:
            return None
        if owes_start(job):
            said = "its workflow is not started yet; an orchestrator will"
            return Drift("workflow_not_started", job_id, said)
        if fate is Fate.MISSING:
            said = f"the job is {job.state.value}, and the server knows no workflow of it"
            return Drift("workflow_missing", job_id, said)
        said = f"the job is {job.state.value}, and its workflow has ended: cancel the job and redrive it"
        return Drift("workflow_ended", job_id, said)

    async def _of_running(self, job_id: str, job: Job | None) -> Drift | None:
        if job is None:
            said = "a workflow runs, and there is no job: if no other ledger has it, terminate it"
            return Drift("workflow_without_job", job_id, said)
        if not job.plan.on_temporal:
            said = "a workflow runs, and the job is on the outbox engine: terminate the workflow"
            return Drift("workflow_of_other_engine", job_id, said)
        if any(owed.kind in WORKFLOW_EFFECTS for owed in job.owed):
            return None  # it is being told, or has been started
        if job.terminal:
            said = f"the job is {job.state.value}, and its workflow runs"
            return Drift("workflow_running", job_id, said)
        standing = await self._workflows.standing(job_id)
        if standing is None or _told(standing) == _told(snapshot(job, job.updated_at)):
            return None
        said = f"the job is {job.state.value} at version {job.version}, and its workflow has not heard of it"
        return Drift("workflow_behind", job_id, said)


def _told(standing: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a workflow acts on, without versions and waits: heartbeats change both, and are not signalled."""
    asked = [(each["stepId"], each["attempt_no"]) for each in standing.get("attempts", ())]
    return standing.get("state"), asked, standing.get("publishes"), standing.get("steps")
