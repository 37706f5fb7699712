"""Background tasks of a process: each is started again where it ends by an error.

Only the tasks that move jobs decide whether the process is ready. Every other task looks after what tenants
ask for, so its error is a warning: one tenant's plan must not take the process away from the others.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lucius.app.engine import Outbox
from lucius.core.errors import (
    LedgerError,
    LedgerUnavailableError,
    LuciusError,
    WorkflowsUnavailableError,
    WorkspaceError,
)
from lucius.core.plan import FIRST_SHARD
from lucius.engine.clock import StorageClock
from lucius.engine.gateway import BusGateway
from lucius.engine.observer import Incident, Observer
from lucius.engine.outbox import OutboxEngine
from lucius.engine.temporal.drift import WorkflowDrift
from lucius.http.context import HealthCheck
from lucius.operations.retention import JobWorkspaces, prune
from lucius.ports.config import ConfigSource
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import Ledger, Sweeps
from lucius.ports.workflows import Workflows

# What is done from time to time, for ever: pruning, sweeping, repairing, looking for new configuration.

SWEEP_PAUSE: Final = timedelta(minutes=1)
REPAIR_PAUSE: Final = timedelta(minutes=5)
"""Between two comparisons of the ledger with Temporal."""
PRUNE_PAUSE: Final = timedelta(minutes=10)
"""Between two looks for jobs that are kept no longer."""


class Chores:
    """What one process should do for all is done by the owner of the first lane."""

    def __init__(
        self, engine: OutboxEngine, ledger: Ledger, lanes: Lanes, *, now: Callable[[], datetime]
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._lanes = lanes
        self._now = now

    async def prune(self, workspaces: JobWorkspaces, retention: timedelta) -> None:
        """Jobs that ended long ago are deleted, with their workspaces."""
        while True:
            await asyncio.sleep(0 if self._is_first_owner() else SWEEP_PAUSE.total_seconds())
            if not self._is_first_owner():
                continue
            before = self._now() - retention
            try:
                deleted = await prune(
                    self._ledger, workspaces, before, forget=self._engine.forget_ended
                )
                if deleted:
                    log.info("%d jobs that ended before %s ago are deleted", deleted, retention)
            except (LedgerError, WorkspaceError) as error:
                log.warning("old jobs are deleted later: %s", error)
            await asyncio.sleep(PRUNE_PAUSE.total_seconds())

    async def repair(self, workflows: Workflows) -> None:
        """Workflows that have not heard how their jobs stand are told, and missing ones are started."""
        drift = WorkflowDrift(workflows, self._ledger)
        while True:
            await asyncio.sleep(REPAIR_PAUSE.total_seconds())
            with contextlib.suppress(LedgerError, WorkflowsUnavailableError):
                before = self._now() - REPAIR_PAUSE
                mended = await drift.repair(before) if self._is_first_owner() else 0
                if mended:
                    log.warning("%d workflows were started or told how their jobs stand", mended)

    async def sweep(self, ledger: Sweeps) -> None:
        """Requests that were claimed and never written are forgotten."""
        while True:
            await asyncio.sleep(SWEEP_PAUSE.total_seconds())
            if self._is_first_owner():
                with contextlib.suppress(LedgerUnavailableError):
                    await ledger.sweep(self._now())

    def _is_first_owner(self) -> bool:
        return any(first in self._lanes.owned for first in FIRST_SHARD.values())


async def refresh(config: ConfigSource, gateway: BusGateway) -> None:
    """New protocols are in force without a restart."""
    while True:
        await asyncio.sleep(config.pause.total_seconds())
        if await config.refresh():
            log.info("the configuration has changed: %s", config.catalog().version)
            await gateway.prepare()


log = logging.getLogger("lucius")

RESTART_PAUSE: Final = timedelta(seconds=1)
VITAL: Final = frozenset(("reconciler", "worker"))
"""The tasks without which no job of any tenant moves."""

BackgroundTask = Callable[[], Awaitable[None]]


class BackgroundTasks:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.down: dict[str, str] = {}
        """What has ended and was not yet begun anew, and why."""

    @asynccontextmanager
    async def watching(self, tasks: Mapping[str, BackgroundTask]) -> AsyncIterator[None]:
        """All of them run as long as this is entered."""
        running = [asyncio.create_task(self._forever(name, run)) for name, run in tasks.items()]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _forever(self, name: str, run: BackgroundTask) -> None:
        """Until a vital task is started again, the process is not ready."""
        while True:
            try:
                await run()
            except Exception as error:
                log.exception("the %s has ended and is started again", name)
                self._observer.incident(Incident.TASK_FAILED, name)
                self.down[name] = repr(error)
                await asyncio.sleep(RESTART_PAUSE.total_seconds())
                self.down.pop(name)

    async def check(self) -> None:
        if vital := {name: why for name, why in self.down.items() if name in VITAL}:
            raise LuciusError("; ".join(f"{name}: {why}" for name, why in vital.items()))

    @property
    def warning(self) -> str | None:
        """The tasks that fail without making the process unready; the log has the error."""
        failed = [name for name in self.down if name not in VITAL]
        return f"started again after an error: {', '.join(failed)}" if failed else None


# What must be well for a process to be ready, and what `why` names where it is not.


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    ledger: Ledger
    outbox: Outbox
    background_tasks: BackgroundTasks
    storage_clock: StorageClock | None
    workflows: Workflows | None

    def checks(self) -> dict[str, HealthCheck]:
        return {
            "ledger": self._check_ledger,
            **({"clock": self._check_clock} if self.storage_clock is not None else {}),
            "bus": self._check_bus,
            "reconciler": self.background_tasks.check,
            **({"temporal": self.workflows.check} if self.workflows is not None else {}),
        }

    def troubles(self) -> dict[str, str]:
        """Everything that does not answer this process now, or has ended here and moves jobs."""
        down = VITAL.intersection(self.background_tasks.down)
        found = {name: f"the {name} has ended and is started again" for name in down}
        if self.outbox.dispatcher.outage.on or self.outbox.replies.outage.on:
            found["bus"] = "the bus does not answer"
        return found

    async def _check_ledger(self) -> None:
        await self.ledger.check()

    async def _check_clock(self) -> None:
        if self.storage_clock is not None:
            self.storage_clock.check()

    async def _check_bus(self) -> None:
        dispatcher, replies = self.outbox.dispatcher, self.outbox.replies
        if dispatcher.outage.on:
            raise LuciusError(f"the bus does not take directives: {dispatcher.outage.why}")
        if replies.outage.on:
            raise LuciusError(f"the bus does not deliver replies: {replies.outage.why}")
