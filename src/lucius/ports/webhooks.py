"""What the API asks about webhooks: which are not delivered, and why."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from lucius.core.record import record


@record
class FailedWebhook:
    """A webhook of a job that has ended. `next_at`: of the next try; None: it is given up."""

    job_id: str
    tenant_id: str
    host: str
    tries: int
    error: str
    failed_at: datetime
    next_at: datetime | None = None


class FailedWebhooks(Protocol):
    async def failed(self, tenants: Collection[str] | None) -> Sequence[FailedWebhook]:
        """Of these tenants, None: of all; the latest first."""
