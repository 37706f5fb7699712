"""What must be well for a process to be ready, and what `why` names where it is not."""

from dataclasses import dataclass

from lucius.api.context import HealthCheck
from lucius.bootstrap.outbox import Outbox
from lucius.bootstrap.standing_tasks import VITAL, StandingTasks
from lucius.core.errors import LuciusError
from lucius.engines.outbox.clock import StorageClock
from lucius.ports.ledger import Ledger
from lucius.ports.workflows import Workflows


@dataclass(frozen=True, slots=True)
class Wellbeing:
    ledger: Ledger
    outbox: Outbox
    standing: StandingTasks
    storage_clock: StorageClock | None
    workflows: Workflows | None

    def checks(self) -> dict[str, HealthCheck]:
        return {
            "ledger": self._check_ledger,
            **({"clock": self._check_clock} if self.storage_clock is not None else {}),
            "bus": self._check_bus,
            "reconciler": self.standing.check,
            **({"temporal": self.workflows.check} if self.workflows is not None else {}),
        }

    def troubles(self) -> dict[str, str]:
        """Everything that does not answer this process now, or has ended here and moves jobs."""
        down = VITAL.intersection(self.standing.down)
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
