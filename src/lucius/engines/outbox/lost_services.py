"""Services that died with an earlier process of this installation: their leases hold nothing.

A durable bus may still hold the ACK of one. So it listens to commits, too, and the reconciler looks.
"""

import asyncio
from dataclasses import dataclass, field

from lucius.core.effects import Committed
from lucius.core.job import Job
from lucius.core.states import StepState


@dataclass
class LostServices:
    """`home`: worker ids of all services that ever lived in this installation's process begin so.

    `alive`: those of the services that live now.
    """

    home: str
    alive: str
    _jobs: dict[str, Job] = field(default_factory=dict)
    _look: bool = False
    _found: asyncio.Event = field(default_factory=asyncio.Event)

    def died(self, alive: str) -> None:
        """Those that lived until now. Others take their place, and every lease is to be looked at."""
        self.alive, self._look = alive, True
        self._found.set()

    def owners(self, job: Job) -> set[str]:
        """Worker ids of the dead that hold a lease of this job."""
        if self.home == self.alive:
            return set()
        at_work = (step for step in job.steps if step.state is StepState.IN_PROGRESS)
        owners = {step.executions[-1].lease_owner or "" for step in at_work}
        return {o for o in owners if o.startswith(self.home) and not o.startswith(self.alive)}

    def listen(self, commit: Committed) -> None:
        if self.home != self.alive and self.owners(commit.job):
            self._jobs[commit.job.job_id] = commit.job
            self._found.set()

    async def jobs(self) -> tuple[list[Job], bool]:
        """Wait for jobs that have a lease of the dead, and return them; True: there may be others."""
        while not self._jobs and not self._look:
            self._found.clear()
            await self._found.wait()
        found, look = list(self._jobs.values()), self._look
        self._jobs.clear()
        self._look = False
        return found, look
