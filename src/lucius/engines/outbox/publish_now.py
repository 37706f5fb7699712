"""Publishing what is pending now: an operator's answer to a bus that has recovered.

It hurries what waits and counts what became of it. It never goes past the maximum of attempts: a
publish that is refused again uses one up, as at any other time.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypedDict

from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.inputs import Ticked
from lucius.core.job import Job, Step
from lucius.core.retry import PUBLISH_GRACE
from lucius.core.states import EntryState, StepState
from lucius.engines.outbox.engine import OutboxEngine
from lucius.engines.outbox.releases import Releases
from lucius.ports.config import Catalog
from lucius.ports.lanes import Lanes
from lucius.ports.ledger import Ledger

MOST: Final = 10_000
"""Jobs looked at in one call, those that are due first."""
AT_ONCE: Final = 64
PATIENCE: Final = timedelta(seconds=5)
"""How long a call waits for the bus; what is not out by then is counted as pending."""
RECENT: Final = timedelta(seconds=2)
"""A publish that was asked for since then is on its way: asking again would only repeat it."""


class Retried(TypedDict):
    """`published`: the bus has it. `pending`: it still waits. `failed`: its attempts are used up."""

    published: int
    pending: int
    failed: int


class _Wait(NamedTuple):
    """A pending entry as it was found: the attempts used tell a later refusal from the one before."""

    place: int
    used: int


class OutboxRetry:
    def __init__(
        self,
        engine: OutboxEngine,
        ledger: Ledger,
        releases: Releases,
        catalog: Callable[[], Catalog],
        *,
        lanes: Lanes,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._releases = releases
        self._lanes = lanes
        self._now = now
        self._catalog = catalog
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def __call__(self) -> Retried:
        now = self._now()
        horizon = now + max(longest_backoff(self._catalog()), PUBLISH_GRACE)
        due = await self._ledger.due(horizon, self._lanes.owned, MOST)
        self._releases.pump_all()
        fates = [
            fate
            for found in await asyncio.gather(*(self._hurry(job.job_id, now) for job in due))
            for fate in found
        ]
        queues = await self._ledger.ready_queues(self._lanes.owned)
        return Retried(
            published=fates.count("published"),
            pending=fates.count("pending") + sum(queue.held for queue in queues),
            failed=fates.count("failed"),
        )

    async def _hurry(self, job_id: str, now: datetime) -> list[str]:
        """What became of each entry of the job that was waiting."""
        try:
            async with self._slots:
                job = await self._engine.job(job_id)
                waits = list(_waiting(job, now)) if job is not None else []
                if not waits:
                    return []
                applied = await self._engine.apply(job_id, Ticked(publish_now=True))
        except (LedgerRowUnreadableError, LedgerTooNewError):
            return []
        return await self._fates(applied.job, waits) if applied is not None else []

    async def _fates(self, job: Job, waits: list[_Wait]) -> list[str]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE.total_seconds()
        while True:
            fates = [_fate(job.steps[wait.place], wait) for wait in waits]
            left = deadline - loop.time()
            if None not in fates or left <= 0:
                return _without_queued(job, waits, fates)
            newer = await self._engine.wait(job.job_id, job.version, left)
            job = newer if newer is not None else job


def longest_backoff(catalog: Catalog) -> timedelta:
    """The longest backoff after a refused publish in the protocols that are in force."""
    steps = (step for protocol in catalog.protocols.values() for step in protocol.steps)
    return max(
        (wait for step in steps for wait in step.policy.publish_backoff), default=timedelta()
    )


def _waiting(job: Job, now: datetime) -> Iterator[_Wait]:
    """Entries that wait out a refusal, or were released and are not known to be sent."""
    for index, step in enumerate(job.steps):
        entry = step.entry
        if entry is None or step.state is not StepState.DISPATCHING:
            continue
        refused = entry.state is EntryState.HELD and entry.ready_at is not None
        asked_at = entry.asked_at
        unsent = step.out and asked_at is not None and asked_at + RECENT <= now
        if refused or unsent:
            yield _Wait(index, step.used)


def _fate(step: Step, wait: _Wait) -> str | None:
    """Whether the entry was published or has failed; None: that is not known yet."""
    if step.state is StepState.FAILED_FINAL:
        return "failed"
    if step.entry is not None and step.entry.state is EntryState.SENT:
        return "published"
    if step.held:
        return "pending" if step.used > wait.used else None
    return None if step.out else "withdrawn"


def _without_queued(job: Job, waits: list[_Wait], fates: list[str | None]) -> list[str]:
    """What waits for the window is counted in the ready queues, not here."""
    pairs = zip(waits, fates, strict=True)
    return [fate or "pending" for wait, fate in pairs if fate or not job.steps[wait.place].ready]
