"""The services as one list: protocols, backlog, workers seen, and what is paused. Put together when asked."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from lucius.core.errors import LedgerError, RequestError
from lucius.core.record import record
from lucius.operations.published_stats import PublishedStats
from lucius.operations.service_stats import ServiceStats, degraded, pace
from lucius.operations.shared_records import Record, SharedRecords, readable
from lucius.operations.workers import Workers
from lucius.ports.config import Catalog
from lucius.ports.engine import BacklogRow
from lucius.ports.leases import LeaseStore
from lucius.ports.services import KnownService, KnownWorker

# Services that are paused: nothing is released to them, and nothing of theirs times out.
#
# The order is a note, so it holds in every process and over a restart. A process that releases looks for it.

log = logging.getLogger("lucius.insight")

PAUSED: Final = "paused"
LOOK: Final = timedelta(seconds=3)
"""Between two looks for what other processes were told."""


@record
class ServicePause:
    """Who paused a service, when, and why if they said so."""

    at: datetime
    by: str
    reason: str | None = None


DAMAGED: Final = ServicePause(
    datetime.fromtimestamp(0, UTC), "unknown", "what is stored of the pause cannot be read"
)
"""Nobody has resumed the service, as far as is known."""


class PausedServices:
    """`alone`: only this process is told of pauses, so it need not look for them."""

    def __init__(self, store: LeaseStore, *, now: Callable[[], datetime], alone: bool) -> None:
        self._records = SharedRecords(store, PAUSED)
        self._now = now
        self._alone = alone
        self._paused: dict[str, ServicePause] = {}
        self._goes_on = asyncio.Event()

    def __contains__(self, service: object) -> bool:
        return service in self._paused

    def get(self, service: str) -> ServicePause | None:
        return self._paused.get(service)

    async def went_on(self) -> None:
        await self._goes_on.wait()
        self._goes_on.clear()

    async def all(self) -> dict[str, ServicePause]:
        """By service, as stored."""
        await self.look()
        return dict(self._paused)

    async def pause(self, service: str, by: str, reason: str | None) -> bool:
        """False: it was paused already, and stays as it was."""
        at, news = self._now(), False

        def paused(stored: Record | None) -> Record:
            nonlocal news
            news = stored is None
            return stored or {"at": at.timestamp(), "by": by, "reason": reason}

        await self._records.change(service, paused)
        await self.look()
        return news

    async def resume(self, service: str) -> bool:
        """False: it was not paused."""
        news = False

        def resumed(stored: Record | None) -> None:
            nonlocal news
            news = stored is not None

        await self._records.change(service, resumed)
        await self.look()
        return news

    async def look(self) -> None:
        """Read what is stored. Whoever waits for a service to go on is told."""
        records = await self._records.read()
        found = {name: readable(name, record, _read, DAMAGED) for name, record in records.items()}
        if self._paused.keys() - found.keys():
            self._goes_on.set()
        self._paused = found

    async def run(self) -> NoReturn:
        """Look for what other processes were told. The first look comes before the start."""
        while True:
            await (asyncio.Future() if self._alone else asyncio.sleep(LOOK.total_seconds()))
            try:
                await self.look()
            except LedgerError as error:
                log.info("paused services are looked for later: %s", error)


def _read(record: Record) -> ServicePause:
    given: dict[str, Any] = dict(record)
    return ServicePause(datetime.fromtimestamp(given["at"], UTC), given["by"], given["reason"])


class KnownServices:
    def __init__(
        self,
        workers: Workers,
        published_stats: PublishedStats,
        paused: PausedServices,
        *,
        catalog: Callable[[], Catalog],
        backlog: Callable[[], Awaitable[Sequence[BacklogRow]]],
        now: Callable[[], datetime],
    ) -> None:
        self._workers = workers
        self._published_stats = published_stats
        self._paused = paused
        self._catalog = catalog
        self._backlog = backlog
        self._now = now

    async def services(self) -> list[KnownService]:
        step_types, paused = step_types_of(self._catalog()), await self._paused.all()
        seen, backlog = await self._published_stats.known(), _summed(await self._backlog())
        unclaimed, untaken = (
            await self._published_stats.unclaimed(),
            await self._published_stats.untaken(),
        )
        refused = await self._published_stats.refused()
        views = [
            self._view(
                name, step_types.get(name, ()), seen.get(name), backlog[name], name in unclaimed
            )
            for name in sorted({*step_types, *paused, *seen, *backlog, *untaken})
        ]
        leases = _longest_leases(self._catalog())
        return [
            replace(
                view,
                untaken=untaken.get(view.service),
                refused_at=refused.get(view.service),
                quiet=self._quiet(view, leases.get(view.service)),
            )
            for view in views
        ]

    def _view(
        self,
        name: str,
        step_types: Sequence[str],
        seen: ServiceStats | None,
        counts: "_Counts",
        unclaimed: bool,
    ) -> KnownService:
        pause = self._paused.get(name)
        rate, failure_rate = pace(seen, self._now) if seen is not None else (0.0, 0.0)
        return KnownService(
            name,
            tuple(step_types),
            subscribed=not unclaimed,
            paused_at=pause.at if pause is not None else None,
            paused_by=pause.by if pause is not None else None,
            paused_reason=pause.reason if pause is not None else None,
            first_seen=seen.first_seen if seen is not None else None,
            last_seen=seen.last_seen if seen is not None else None,
            waiting=counts.held + counts.sent,
            sent=counts.sent,
            running=counts.running,
            oldest_sent=self._now() - timedelta(seconds=counts.oldest) if counts.sent else None,
            rate=rate,
            failure_rate=failure_rate,
            workers=_workers(seen) if seen is not None else (),
            free=_free(seen) if seen is not None else 0,
            last_success=seen.last_success if seen is not None else None,
            degraded=degraded(seen, self._now) if seen is not None else None,
            failing=seen.failing if seen is not None else None,
            failing_before=seen.failing_before if seen is not None else None,
            failed_until=seen.failed_until if seen is not None else None,
        )

    def _quiet(self, view: KnownService, lease: timedelta | None) -> int:
        """Where no protocol says how long a lease is, nobody is late."""
        if lease is None:
            return 0
        late = self._now() - lease / 2
        return sum(worker.running for worker in view.workers if worker.last_seen < late)

    async def pause(self, service: str, by: str, reason: str | None) -> bool:
        await self._check(service)
        return await self._paused.pause(service, by, reason)

    async def resume(self, service: str) -> bool:
        await self._check(service)
        return await self._paused.resume(service)

    async def _check(self, service: str) -> None:
        known = [view.service for view in await self.services()]
        if service not in known:
            raise RequestError(
                "SERVICE_NOT_FOUND",
                f"no protocol names the service {service[:128]!r}, and no job waits for it;"
                f" there are: {', '.join(known) or 'none'}",
                status=404,
            )

    def pulled(self, service: str, worker_id: str, slots: int | None, version: str | None) -> None:
        """Of a service that no protocol names, nothing is remembered: a stranger may ask for any name."""
        if service in step_types_of(self._catalog()):
            self._workers.pulled(service, worker_id, self._now(), slots, version)


def step_types_of(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Every service that a protocol names, and what it executes."""
    found: dict[str, set[str]] = {}
    for protocol in catalog.protocols.values():
        for step in protocol.steps:
            found.setdefault(step.service, set()).add(step.step_type)
    return {service: tuple(sorted(types)) for service, types in found.items()}


def _longest_leases(catalog: Catalog) -> dict[str, timedelta]:
    """Of each service; a worker that is alive speaks within half of it."""
    found: dict[str, timedelta] = {}
    for protocol in catalog.protocols.values():
        for step in protocol.steps:
            known = found.get(step.service, timedelta())
            found[step.service] = max(known, step.policy.lease)
    return found


@dataclass(slots=True)
class _Counts:
    """Of all lanes and modes."""

    held: int = 0
    sent: int = 0
    running: int = 0
    oldest: float = 0.0


def _summed(rows: Sequence[BacklogRow]) -> defaultdict[str, _Counts]:
    found: defaultdict[str, _Counts] = defaultdict(_Counts)
    for row in rows:
        counts = found[row["service"]]
        counts.held += row["held"]
        counts.sent += row["released"]
        counts.running += row["in_progress"]
        counts.oldest = max(counts.oldest, row["oldest_seconds"])
    return found


def _free(seen: ServiceStats) -> int:
    """Slots that are empty at workers that have work in hand. Others may be gone, and so are theirs."""
    at_work = [stats for stats in seen.workers.values() if stats.running]
    return sum(max(0, (stats.slots or 0) - stats.running) for stats in at_work)


def _workers(seen: ServiceStats) -> list[KnownWorker]:
    """The latest first."""
    found = [
        KnownWorker(worker_id, stats.last_seen, stats.running, stats.slots, stats.version)
        for worker_id, stats in seen.workers.items()
    ]
    return sorted(found, key=lambda worker: worker.last_seen, reverse=True)
