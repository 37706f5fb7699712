"""The signaller starts and signals the workflows of jobs on Temporal, and settles what was delivered.

A signal carries how the job stands, so the newest says all. What is not urgent is put off a little: mostly
something newer comes meanwhile, which says it too, and one signal and one save are spared.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from lucius.core.effects import SignalWorkflow, StartWorkflow
from lucius.core.errors import WorkflowsUnavailableError
from lucius.core.inputs import EffectSettled
from lucius.core.job import Job
from lucius.core.turn import ACK
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.observer import Incident, Observer
from lucius.ports.workflows import Workflows

log = logging.getLogger("lucius.signaller")

ACK_DELAY: Final = timedelta(seconds=1)
"""How long the signal of an ACK waits: the RESULT that may follow tells the workflow the same."""
SETTLE_DELAY: Final = timedelta(seconds=1)
"""How long a delivered signal stays owed: the next question of its workflow usually settles it before."""


class Signaller:
    def __init__(
        self,
        engine: OutboxEngine,
        workflows: Workflows,
        *,
        starts: bool,
        observer: Observer,
    ) -> None:
        """`starts`: whether workflows are started here; else by orchestrators alone."""
        self._engine = engine
        self._workflows = workflows
        self._starts = starts
        self._observer = observer

    async def perform(self, job: Job, effect: SignalWorkflow | StartWorkflow) -> None:
        """Start or signal the workflow. What cannot be delivered now stays owed."""
        try:
            if isinstance(effect, SignalWorkflow):
                await self._signal(job, effect)
            elif self._starts:
                await self._workflows.start(job)  # settled by the first thing that it asks for
        except WorkflowsUnavailableError as error:
            cause = "start" if isinstance(effect, StartWorkflow) else "signal"
            self._observer.incident(Incident.WORKFLOW_UNREACHED, cause)
            log.info("the workflow of job %s is told later: %s", job.job_id, error)

    async def _signal(self, job: Job, effect: SignalWorkflow) -> None:
        """A workflow that has ended needs no signal."""
        newest: Job | None = job
        if effect.signal == ACK:
            newest = await self._still_owing(job, effect, ACK_DELAY)
        if newest is None:
            return
        await self._workflows.signal(newest, effect)
        if job.terminal or await self._still_owing(job, effect, SETTLE_DELAY) is not None:
            await self._engine.apply(job.job_id, EffectSettled(effect.owed_id, performed=True))

    async def _still_owing(self, job: Job, effect: SignalWorkflow, delay: timedelta) -> Job | None:
        """The job after a pause, if the signal is still owed; None: something else has told the workflow."""
        await asyncio.sleep(delay.total_seconds())
        newest = await self._engine.job(job.job_id)
        owed = newest.owed if newest is not None else ()
        return newest if any(each.owed_id == effect.owed_id for each in owed) else None
