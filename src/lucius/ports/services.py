"""What the API asks about services: who works for them, how fast, and whether they are paused."""

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final, Protocol

from lucius.core.record import record


@record
class KnownWorker:
    """`running`: steps that it has at work. `slots`: how many it takes at once, if it says so."""

    worker_id: str
    last_seen: datetime
    running: int = 0
    slots: int | None = None
    version: str | None = None
    pulls: bool = False
    """It is heard of whenever it has a free slot."""


MOST_JOBS: Final = 10
"""Jobs of a streak that are told apart: more make no difference."""


@record
class Streak:
    """Jobs of one service that failed one after the other, with no success in between.

    `group` is empty where they did not fail alike; then `code` and `message` are the last.
    """

    since: datetime
    group: str
    code: str
    message: str
    jobs: int
    """How many different ones, as far as it matters: they are counted to ten."""
    until: datetime | None = None
    """When the next job succeeded, if one has."""
    tenants: frozenset[str] = frozenset()
    """Whose jobs they are, as far as they are remembered: others hear nothing of them."""
    retried: bool = False
    """Whether the last of these failures is repeated."""

    @property
    def one_tenant(self) -> str | None:
        """The tenant of all these jobs, if they have one: then its documents may be the fault."""
        return next(iter(self.tenants)) if len(self.tenants) == 1 else None


@record
class RetriedFailures:
    """The code with which most attempts of a service failed lately and were repeated.

    `failed` of the `ended` attempts of the last `minutes`, the first of them in the minute of `since`.
    """

    code: str
    failed: int
    ended: int
    minutes: int
    since: datetime


@record
class KnownService:
    """`waiting`: directives that are held or on their way; of those, `sent` are with the bus.

    `oldest_sent`: since when the longest of them waits for a worker. `untaken`: since when a step waits
    to be sent again, because nobody took its directive. `rate`: attempts that ended in a minute, lately;
    `failure_rate`: the part of them that failed. `free`: empty slots of workers that have work in hand.
    `quiet`: of the `running` steps, those whose worker has said nothing for more than half of a lease.
    `late`: those of them too whose worker should have been heard of earlier.
    """

    service: str
    step_types: tuple[str, ...] = ()
    subscribed: bool = True
    here: bool = False
    """The process that is asked runs it itself."""
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_reason: str | None = None
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    waiting: int = 0
    sent: int = 0
    running: int = 0
    oldest_sent: datetime | None = None
    untaken: datetime | None = None
    rate: float = 0.0
    failure_rate: float = 0.0
    workers: Sequence[KnownWorker] = field(default_factory=tuple)
    free: int = 0
    quiet: int = 0
    late: int = 0
    usual: tuple[float, float] | None = None
    """Seconds that a step takes, the median and the 95th of 100; None: too few are known."""
    lease: timedelta | None = None
    """The longest of the protocols."""
    pull_refused: tuple[datetime, int, str | None] | None = None
    """A pull for it that was answered with an error lately: when, the status, and by which key."""
    similar: str | None = None
    """A service of nearly the same name that has workers."""
    misnamed: str | None = None
    """A name close to its own for which somebody pulls, and that no protocol has."""
    last_success: datetime | None = None
    failing: Streak | None = None
    failing_before: Streak | None = None
    """Where `failing` began after something else: all that failed since the last success."""
    failed_until: Streak | None = None
    """The last time that it failed every job, which is over."""
    degraded: RetriedFailures | None = None
    """Where so many attempts fail with one code that the service needs a look, though jobs succeed."""
    refused_at: datetime | None = None
    """When a reply of it was refused last, because its callback token is missing or wrong."""

    @property
    def refused(self) -> bool:
        """Whether nothing of it was accepted since."""
        if self.refused_at is None:
            return False
        return self.last_seen is None or self.refused_at > self.last_seen


class ServiceBook(Protocol):
    async def services(self) -> Sequence[KnownService]:
        """Every service that a protocol names, that was seen, or that work waits for; by name."""

    async def pause(self, service: str, by: str, reason: str | None) -> bool:
        """Release nothing to it. False: it was paused already. RequestError: no such service."""

    async def resume(self, service: str) -> bool:
        """Go on. False: it was not paused. RequestError: no such service."""

    def pulled(self, service: str, worker_id: str, slots: int | None, version: str | None) -> None:
        """A worker asks for directives."""

    async def drop(self, worker_id: str, by: str, reason: str | None) -> Sequence[str]:
        """Take back what a worker that is gone has in hand: the jobs. RequestError: no such worker."""
