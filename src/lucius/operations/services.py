"""The services as one list: protocols, backlog, workers seen, and what is paused. Put together when asked."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from lucius.core.effects import Outcome
from lucius.core.errors import LedgerError, RequestError
from lucius.core.inputs import LeaseReturned
from lucius.core.job import DELIVERING_JOB, Job, StepState
from lucius.core.record import record
from lucius.operations.published_stats import PublishedStats
from lucius.operations.refusals import Refused
from lucius.operations.service_rules import patience
from lucius.operations.service_stats import ServiceStats, degraded, pace
from lucius.operations.shared_records import Record, SharedRecords, readable
from lucius.operations.workers import Workers
from lucius.ports.config import Catalog
from lucius.ports.engine import BacklogRow, Engine
from lucius.ports.leases import LeaseStore
from lucius.ports.ledger import JobQuery
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


@record
class OwnServices:
    """Services of this process. `running`: those that take directives now.

    Ids of workers that ever lived in this installation's process begin with `home`, and with `alive` if they
    live now. One process owns them, so the others are gone.
    """

    home: str = ""
    alive: str = ""
    running: frozenset[str] = frozenset()

    def is_gone(self, worker_id: str) -> bool:
        return bool(self.home) and (
            worker_id.startswith(self.home) and not worker_id.startswith(self.alive)
        )


class KnownServices:
    def __init__(
        self,
        workers: Workers,
        published_stats: PublishedStats,
        paused: PausedServices,
        *,
        catalog: Callable[[], Catalog],
        engine: Engine,
        own: Callable[[], OwnServices],
        now: Callable[[], datetime],
    ) -> None:
        self._own = own
        self._workers = workers
        self._published_stats = published_stats
        self._paused = paused
        self._catalog = catalog
        self._engine = engine
        self._now = now

    async def services(self) -> list[KnownService]:
        step_types, paused = step_types_of(self._catalog()), await self._paused.all()
        seen, backlog = await self._published_stats.known(), _summed(await self._engine.backlog())
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
        said = await self._published_stats.refusals()
        return [
            self._judged(
                replace(
                    view,
                    untaken=untaken.get(view.service),
                    refused_at=refused.get(view.service),
                    lease=leases.get(view.service),
                ),
                said,
                step_types,
                seen,
            )
            for view in views
        ]

    def _judged(
        self,
        view: KnownService,
        said: Refused,
        named: Mapping[str, tuple[str, ...]],
        seen: Collection[str],
    ) -> KnownService:
        """With its workers that should have been heard of, and those that came and were refused."""
        quiet, late = self._quiet(view, view.lease)
        pull = said.pulls.get(view.service)
        others = [name for name in said.misnamed if name not in named]
        close = get_close_matches(view.service, others, 1)
        there = [name for name in seen if name != view.service]
        similar = get_close_matches(view.service, there, 1)
        return replace(
            view,
            quiet=quiet,
            late=late,
            pull_refused=(pull.at, pull.status, pull.key_id) if pull is not None else None,
            misnamed=close[0] if close else None,
            similar=similar[0] if similar else None,
        )

    def _view(
        self,
        name: str,
        step_types: Sequence[str],
        seen: ServiceStats | None,
        counts: "_Counts",
        unclaimed: bool,
    ) -> KnownService:
        pause, own = self._paused.get(name), self._own()
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
            here=name in own.running,
            workers=_workers(seen, own) if seen is not None else (),
            free=_free(seen) if seen is not None else 0,
            last_success=seen.last_success if seen is not None else None,
            degraded=degraded(seen, self._now) if seen is not None else None,
            failing=seen.failing if seen is not None else None,
            failing_before=seen.failing_before if seen is not None else None,
            failed_until=seen.failed_until if seen is not None else None,
            usual=seen.usual if seen is not None else None,
        )

    def _quiet(self, view: KnownService, lease: timedelta | None) -> tuple[int, int]:
        """Where no protocol says how long a lease is, nobody is late."""
        if lease is None:
            return 0, 0
        now, known = self._now(), replace(view, lease=lease)
        silent = [(worker, now - worker.last_seen) for worker in view.workers if worker.running]
        quiet = sum(worker.running for worker, length in silent if length > lease / 2)
        late = sum(worker.running for worker, length in silent if length > patience(known, worker))
        return quiet, late

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

    async def drop(self, worker_id: str, by: str, reason: str | None) -> list[str]:
        """Every lease that the worker holds is taken back: its steps are dispatched again at once."""
        dropped: list[str] = []
        query = JobQuery(states=DELIVERING_JOB, limit=500)
        while True:
            page = await self._engine.jobs(query)
            for job in page.jobs:
                if await self._taken_back(job, worker_id, by, reason):
                    dropped.append(job.job_id)
            if page.next_cursor is None:
                break
            query = replace(query, cursor=page.next_cursor)
        if not self._workers.drop(worker_id) and not dropped:
            detail = f"no worker {worker_id[:128]!r} was seen, and no step is in its hands"
            raise RequestError("WORKER_NOT_FOUND", detail, status=404)
        return dropped

    async def _taken_back(self, job: Job, worker_id: str, by: str, reason: str | None) -> bool:
        moved = False
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            run = step.execution
            if step.state is StepState.IN_PROGRESS and run and run.lease_owner == worker_id:
                bound = (planned.step_id, run.attempt_no, run.exec_id)
                received = LeaseReturned(*bound, worker_id, by=by, reason=reason)
                applied = await self._engine.apply(job.job_id, received)
                moved |= applied is not None and applied.outcome is Outcome.APPLIED
        return moved

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


def _workers(seen: ServiceStats, own: OwnServices) -> list[KnownWorker]:
    """The latest first, without those that died with an earlier process."""
    found = [
        KnownWorker(
            *(worker_id, stats.last_seen, stats.running, stats.slots, stats.version), stats.pulls
        )
        for worker_id, stats in seen.workers.items()
        if not own.is_gone(worker_id)
    ]
    return sorted(found, key=lambda worker: worker.last_seen, reverse=True)
