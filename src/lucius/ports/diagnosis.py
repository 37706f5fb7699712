"""What the API asks to explain a job, or the system: causes with their evidence."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Protocol

from lucius.contract.causes import CAUSES, Severity
from lucius.core.job import Job
from lucius.core.record import record


@record
class Evidence:
    """One fact that led to a cause: a sentence, and when it was so."""

    what: str
    at: datetime | None = None


@record
class Impact:
    """Whom it concerns, as far as the asker may know: jobs, whose they are, and since when the oldest waits.

    `more`: there are more than were looked at, so all three are the least that is known.
    """

    jobs: int
    tenants: Sequence[str] = ()
    oldest_at: datetime | None = None
    more: bool = False


@record
class Diagnosis:
    """One cause, why it was named, what comes next by itself and when, and the command that helps."""

    cause: str
    summary: str
    since: datetime | None = None
    evidence: Sequence[Evidence] = field(default_factory=tuple)
    next_what: str = ""
    next_at: datetime | None = None
    command: str = ""
    service: str | None = None
    impact: Impact | None = None

    @property
    def severity(self) -> Severity:
        return CAUSES[self.cause].severity


class Diagnoser(Protocol):
    """`troubles`: what does not answer now, by name, as the readiness of the process says it.

    `tenants`: those of the caller; None: all. A caller that is bound hears of no other tenant's failures,
    and nothing that counts other tenants' jobs.
    """

    async def job(
        self, job: Job, troubles: Mapping[str, str], *, tenants: Collection[str] | None
    ) -> Diagnosis:
        """Why the job is where it is: one cause."""

    async def system(
        self,
        troubles: Mapping[str, str],
        warnings: Mapping[str, str],
        *,
        tenants: Collection[str] | None,
    ) -> Sequence[Diagnosis]:
        """What is wrong now, worst first."""

    async def stuck(self, jobs: Sequence[Job], troubles: Mapping[str, str]) -> Collection[str]:
        """The ids of those that do not go on by themselves."""
