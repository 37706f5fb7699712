"""The services that run in this process: their runners, the processes they fork, and who tells them."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from lucius.bootstrap.ending import say_stopping
from lucius.bootstrap.services import check_services, runners_of
from lucius.core.effects import Committed
from lucius.core.states import StepState
from lucius.platform import Service
from lucius.platform.isolation.forks import ForkServer
from lucius.ports.bus import Bus
from lucius.ports.workspace import Workspace

SLOTS: Final = 64
"""Steps that each embedded service runs at once."""


class OwnServices:
    """`incarnation`: what their worker ids begin with; a later process knows by it who has died."""

    def __init__(
        self,
        services: Sequence[Service],
        bus: Bus,
        workspace: Workspace,
        *,
        topology: str,
        topologies: Sequence[str],
        grace: timedelta,
        incarnation: str,
    ) -> None:
        check_services(services)
        self._grace = grace
        self._forks = [ForkServer()]
        self.runners = [
            runner
            for service in services
            for runner in runners_of(
                service,
                bus,
                workspace,
                topology=topology,
                topologies=topologies,
                slots=SLOTS,
                forks=self._forks_of(service),
                grace=grace,
                worker_id=f"{incarnation}{service.name}",
            )
        ]

    def _forks_of(self, service: Service) -> ForkServer:
        """A child knows all that its fork server was told: so secrets are told to one of their own."""
        if service.private:
            self._forks.append(ForkServer())
            return self._forks[-1]
        return self._forks[0]

    async def start(self) -> None:
        for runner in self.runners:
            await runner.start()

    async def drain(self) -> None:
        """Nothing new begins; what runs ends, or is given back. The log says what is waited for."""
        say_stopping(self.running, self._grace)
        await asyncio.gather(*(runner.stop() for runner in self.runners))

    async def close(self) -> None:
        for forks in self._forks:
            await forks.close()

    @property
    def running(self) -> int:
        """Steps at work."""
        return sum(runner.health().running for runner in self.runners)

    @property
    def left_behind(self) -> int:
        """Executions that would not end, once they were drained."""
        return sum(runner.left_behind for runner in self.runners)

    @property
    def trouble(self) -> str | None:
        """They live as long as this process."""
        return None

    def whose(self, task: asyncio.Task[Any] | None) -> str | None:
        """The service that the task belongs to."""
        return next((runner.name for runner in self.runners if runner.serves(task)), None)

    def listen(self, commit: Committed) -> None:
        """Services that live here hear of a cancellation directly, others by notices or heartbeats.

        A lease that the ledger has ended ends here too: nothing more is committed under it.
        """
        before, job = commit.before, commit.job
        if before is None or not self.runners:
            return
        for lease_id in ended_leases(commit):
            for runner in self.runners:
                runner.end_lease(lease_id)
        if job.cancel_requested_at is not None and before.state != job.state:
            for runner in self.runners:
                runner.request_cancel(job.job_id)


def ended_leases(commit: Committed) -> list[str]:
    """Leases that were the current ones and are no more: replaced, or their job has ended without them.

    During a backoff the last attempt is still the current one: its late success counts.
    """
    if commit.before is None:
        return []
    job, pairs = commit.job, zip(commit.before.steps, commit.job.steps, strict=True)
    return [
        old.execution.exec_id
        for old, new in pairs
        if old.execution is not None
        and new.execution is not None
        and old.state is not StepState.SUCCEEDED
        and new.state is not StepState.SUCCEEDED
        and (new.execution.exec_id != old.execution.exec_id or job.terminal)
    ]
