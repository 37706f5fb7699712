"""The engine of an orchestrator whose jobs run on Temporal: it creates and reads, the invoker moves.

Jobs that began on the outbox engine are moved here, as before: each job stays on the engine it began with.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from lucius.core.effects import Committed, Event
from lucius.core.errors import (
    LedgerRowUnreadableError,
    LedgerTooNewError,
    LedgerUnavailableError,
    WorkflowsUnavailableError,
)
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.core.plan import FIRST_SHARD, TEMPORAL
from lucius.core.retry import WORKFLOW_BACKOFF
from lucius.core.routing import LANES
from lucius.engine.temporal.invoker_client import RemoteInvoker
from lucius.ports.engine import Applied, BacklogRow, Engine, Submitted
from lucius.ports.ledger import JobPage, JobQuery, Ledger
from lucius.ports.workflows import Workflows

# Workflows of new jobs are started by the process that created them; a sweep finds those that were not.
#
# A job owes its start until its workflow has asked for something. So a start that failed, or a process that
# died before it, leaves a job that is due; and a start that is repeated finds the workflow there.

log = logging.getLogger("lucius.starter")

AT_ONCE: Final = 64
MOST_WAITING: Final = 4096
"""New jobs that wait to be started here; those beyond are left to the sweep."""
PAUSE: Final = timedelta(seconds=5)
AHEAD: Final = WORKFLOW_BACKOFF[-1] + PAUSE
"""The owner of a lane puts the start of a job off by so much at most, so none is missed."""
SHARDS: Final = range(FIRST_SHARD[TEMPORAL], FIRST_SHARD[TEMPORAL] + LANES)


class WorkflowStarter:
    def __init__(
        self, workflows: Workflows, ledger: Ledger, *, now: Callable[[], datetime]
    ) -> None:
        self._workflows = workflows
        self._ledger = ledger
        self._now = now
        self._new: asyncio.Queue[Job] = asyncio.Queue(MOST_WAITING)

    def listen(self, commit: Committed) -> None:
        """A job that was created here."""
        if commit.before is None and owes_start(commit.job) and not self._new.full():
            self._new.put_nowait(commit.job)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._start_forever())
            tasks.create_task(self._sweep_forever())

    async def _start_forever(self) -> None:
        while True:
            await self._start(await self._new.get())

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(PAUSE.total_seconds())
            try:
                await self.sweep()
            except LedgerUnavailableError as error:
                log.info("what was not started is looked for later: %s", error)

    async def sweep(self) -> int:
        """Start what should have been started a while ago. How many there were.

        Where none of many could be started, the server is away: the rest waits for the next sweep.
        """
        found, after = 0, None
        while page := await self._ledger.due(self._now() + AHEAD, SHARDS, AT_ONCE, after):
            jobs = await asyncio.gather(*(self._owing(due.job_id) for due in page))
            owing = [job for job in jobs if job is not None]
            started = await asyncio.gather(*map(self._start, owing))
            found += len(owing)
            if started and not any(started):
                break
            after = page[-1]
        return found

    async def _owing(self, job_id: str) -> Job | None:
        """None: its workflow is there, or the row cannot be read here, which the ledger has said."""
        try:
            job = await self._ledger.load(job_id)
        except (LedgerRowUnreadableError, LedgerTooNewError):
            return None
        return job if job is not None and owes_start(job) else None

    async def _start(self, job: Job) -> bool:
        """Whether the server has answered."""
        try:
            await self._workflows.start(job)
        except WorkflowsUnavailableError as error:
            log.info("the workflow of job %s is started later: %s", job.job_id, error)
            return False
        except Exception:  # one job's own fault: the sweep comes back to it
            log.exception("the workflow of job %s cannot be started", job.job_id)
        return True


def owes_start(job: Job) -> bool:
    return any(owed.kind == "start_workflow" for owed in job.owed)


class TemporalEngine:
    def __init__(self, here: Engine, invoker: RemoteInvoker) -> None:
        self._here = here
        self._invoker = invoker

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        job = await self._here.job(job_id)
        if job is None or not job.plan.on_temporal:
            return await self._here.apply(job_id, received)
        passed_on = await self._invoker.apply(job_id, received)
        after = await self._here.job(job_id)
        if passed_on is None or after is None:
            return None
        return Applied(passed_on.outcome, after, passed_on.code)

    # -- as ever -----------------------------------------------------------------------------

    async def submit(
        self, envelope: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Submitted:
        return await self._here.submit(envelope, idempotency_key=idempotency_key)

    async def redrive(
        self,
        job_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        output_ref: Any = None,
        audit: Mapping[str, str] | None = None,
    ) -> Submitted:
        return await self._here.redrive(job_id, payload=payload, output_ref=output_ref, audit=audit)

    async def job(self, job_id: str) -> Job | None:
        return await self._here.job(job_id)

    async def wait(self, job_id: str, version: int, seconds: float) -> Job | None:
        return await self._here.wait(job_id, version, seconds)

    async def ended(self, job_id: str, seconds: float) -> Job | None:
        return await self._here.ended(job_id, seconds)

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        return await self._here.events(job_id, after, limit)

    async def jobs(self, query: JobQuery) -> JobPage:
        return await self._here.jobs(query)

    async def count(self, query: JobQuery) -> int:
        return await self._here.count(query)

    async def backlog(self) -> Sequence[BacklogRow]:
        return await self._here.backlog()

    async def unreadable(self) -> int:
        return await self._here.unreadable()
