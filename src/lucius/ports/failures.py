"""What the API asks about failures: which are alike, how many, since when, and an example."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from lucius.core.record import record


@record
class FailureGroup:
    """Failed attempts with one fingerprint, of the tenants that the asker may see.

    `message` is what their messages have in common. `trend`: how many in each five minutes of the last
    hour, the latest last. `example`: the job that failed so last.
    """

    group: str
    step_id: str
    service: str
    code: str
    message: str
    place: str | None
    count: int
    first_at: datetime
    last_at: datetime
    tenants: Sequence[str]
    trend: Sequence[int]
    example: str


class FailureGroups(Protocol):
    async def groups(self, tenants: Collection[str] | None) -> Sequence[FailureGroup]:
        """Those with failures of these tenants (None: of all), the latest first."""
