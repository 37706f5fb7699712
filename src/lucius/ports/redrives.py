"""What the API asks about redrive plans: many failed jobs, a few first, at a pace, stopped by failures."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from lucius.contract.words import PlanState as PlanState
from lucius.core.limits import Number
from lucius.core.record import record
from lucius.ports.ledger import JobQuery

RATE: Final = Number(0.001, 1000.0)
"""Jobs a second: from one in about 17 minutes on."""


ENDED_PLAN = (PlanState.DONE, PlanState.STOPPED)


@record
class RedriveRules:
    """`rate`: jobs a second. `stop_after`: a part of those that ended (0.1), or a count (10)."""

    canary: int = 5
    rate: float = 10.0
    stop_after: float = 0.1
    counts: bool = False
    """Whether `stop_after` is a count."""


@record
class RedrivePlan:
    """`matched` is how many there were at the start; `redriven`, `succeeded` and `failed` count on."""

    plan_id: str
    state: PlanState
    filters: Mapping[str, Any]
    tenants: Collection[str] | None
    rules: RedriveRules
    created_at: datetime
    updated_at: datetime
    paced_at: datetime
    """When it last looked for jobs to redrive: its pace is counted from there."""
    by: str
    reason: str | None = None
    matched: int = 0
    redriven: int = 0
    succeeded: int = 0
    failed: int = 0
    refused: int = 0
    under_way: int = 0
    said: str = ""
    """Why it stopped, or what it waits for."""
    bound: bool = False
    """Whether its caller is bound to tenants, so that it counts for their share."""


class Redrives(Protocol):
    async def start(
        self,
        query: JobQuery,
        rules: RedriveRules,
        by: str,
        reason: str | None,
        *,
        bound: bool = False,
    ) -> RedrivePlan:
        """Durable on return. RequestError NOTHING_TO_REDRIVE: no job matches.

        `bound`: for a caller that is bound to tenants.
        """

    async def plans(self) -> Sequence[RedrivePlan]:
        """The newest first."""

    async def stop(self, plan_id: str, by: str) -> RedrivePlan | None:
        """Redrive no more. None: there is no such plan."""
