"""What is done from time to time, for ever: pruning, sweeping, repairing, looking for new configuration."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from lucius.core.errors import (
    LedgerError,
    LedgerUnavailableError,
    WorkflowsUnavailableError,
    WorkspaceError,
)
from lucius.core.plan import FIRST_DESK
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.temporal.drift import WorkflowDrift
from lucius.gateway.bus_gateway import BusGateway
from lucius.ports.config import ConfigSource
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import Ledger, Sweeps
from lucius.ports.workflows import Workflows
from lucius.upkeep.job_workspaces import JobWorkspaces
from lucius.upkeep.retention import prune

log = logging.getLogger("lucius")

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
        return any(first in self._lanes.owned for first in FIRST_DESK.values())


async def refresh(config: ConfigSource, gateway: BusGateway) -> None:
    """New protocols are in force without a restart."""
    while True:
        await asyncio.sleep(config.pause.total_seconds())
        if await config.refresh():
            log.info("the configuration has changed: %s", config.catalog().version)
            await gateway.prepare()
