"""What a process knows that others cannot see, written down: one note each, and only if there is news.

Who was seen, whose directives nobody takes, and what does not answer. So every process can tell, and the
next one after a restart knows who was there.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from lucius.core.errors import LedgerError
from lucius.core.record import record
from lucius.operations.deliveries import Deliveries, merged_failed, read_failed
from lucius.operations.refusals import Refusals, Refused, refused_in
from lucius.operations.service_stats import (
    ServiceStats,
    instant_of,
    merged,
    read_record,
    seconds_of,
)
from lucius.operations.shared_records import Record, readable
from lucius.operations.workers import Workers
from lucius.ports.leases import LeaseRow, LeaseStore
from lucius.ports.webhooks import FailedWebhook

log = logging.getLogger("lucius.insight")

_SEEN: Final = "seen|"
EVERY: Final = timedelta(seconds=10)
"""Between two notes of a process."""
KEPT: Final = timedelta(days=7)
"""For so long it is known that a worker was there once."""
FRESH: Final = timedelta(seconds=45)
"""A note that is older says nothing of what does not answer now."""

Troubles = Callable[[], Mapping[str, str]]
"""What does not answer this process now, and what it says: `bus`, `ledger`, or the name of a task."""


@record
class ProcessStats:
    """The note of another process."""

    at: float
    services: Mapping[str, ServiceStats]
    unclaimed: Sequence[str]
    troubles: Mapping[str, str]
    untaken: Mapping[str, datetime]
    refused: Mapping[str, datetime]
    refusals: Mapping[str, Any]
    deliveries: Sequence[FailedWebhook]

    @classmethod
    def of(cls, record: Record) -> "ProcessStats":
        services, troubles = read_record(record["services"]), dict(record["troubles"])
        untaken, refused = (_instants(record.get(name, {})) for name in ("untaken", "refused"))
        failed = read_failed(record.get("deliveries", ()))
        besides = (untaken, refused, record.get("refusals", {}), failed)
        return cls(float(record["at"]), services, list(record["unclaimed"]), troubles, *besides)


def _instants(record: Mapping[str, Any]) -> dict[str, datetime]:
    return {name: instant_of(seconds) for name, seconds in record.items()}


class PublishedStats:
    """`name` is that of the process. `alone`: no other process writes such notes at the same time."""

    def __init__(
        self,
        store: LeaseStore,
        workers: Workers,
        name: str,
        *,
        unclaimed: Callable[[], list[str]],
        troubles: Troubles,
        refusals: Refusals,
        deliveries: Deliveries,
        now: Callable[[], datetime],
        alone: bool,
    ) -> None:
        self._store = store
        self._workers = workers
        self._name = name
        self._unclaimed = unclaimed
        self._troubles = troubles
        self._refusals = refusals
        self._deliveries = deliveries
        self._now = now
        self._alone = alone
        self._etag: str | None = None
        self._wrote: object = None
        self._swept_at: datetime | None = None

    # -- reading -----------------------------------------------------------------------------

    async def known(self) -> dict[str, ServiceStats]:
        """Services by name, as all processes have seen them. Where there is one, nothing is read."""
        others = [seen.services for seen in await self._others()]
        return merged([self._workers.known(), *others])

    async def unclaimed(self) -> set[str]:
        """Services whose directives nobody takes."""
        others = [service for seen in await self._recent() for service in seen.unclaimed]
        return {*self._unclaimed(), *others}

    def progress(self, lease_id: str) -> str | None:
        return self._workers.progress(lease_id)

    async def untaken(self) -> dict[str, datetime]:
        """Services with steps that are sent again because nobody took them, and since when."""
        found = self._workers.untaken()
        for seen in await self._recent():
            for service, since in seen.untaken.items():
                found[service] = min(found.get(service, since), since)
        return found

    async def refused(self) -> dict[str, datetime]:
        """Services whose replies were refused for their token, and when last."""
        found = dict(self._workers.refused)
        for seen in await self._others():
            for service, at in seen.refused.items():
                found[service] = max(found.get(service, at), at)
        return found

    async def refusals(self) -> Refused:
        """Requests that were refused in the last minutes."""
        others = [seen.refusals for seen in await self._others()]
        return refused_in([self._refusals.record(), *others], self._now())

    async def failed(self, tenants: Collection[str] | None) -> list[FailedWebhook]:
        others = [seen.deliveries for seen in await self._others()]
        return merged_failed([self._deliveries.all(), *others], tenants)

    async def troubles(self) -> dict[str, str]:
        """What does not answer some process now."""
        found = dict(self._troubles())
        for seen in await self._recent():
            for name, said in seen.troubles.items():
                found.setdefault(name, said)
        return found

    async def _recent(self) -> list[ProcessStats]:
        oldest = (self._now() - FRESH).timestamp()
        return [seen for seen in await self._others() if seen.at >= oldest]

    async def _others(self) -> list[ProcessStats]:
        if self._alone:
            return []
        rows = [row for row in await self._rows() if row.key != _SEEN + self._name]
        read = (readable(row.key, row.content, ProcessStats.of, None) for row in rows)
        return [seen for seen in read if seen is not None]

    async def _rows(self) -> list[LeaseRow]:
        return [row for row in await self._store.rows() if row.key.startswith(_SEEN)]

    # -- writing -----------------------------------------------------------------------------

    async def recall(self) -> None:
        """At the start: what earlier processes have seen, where none but this one is alive."""
        for row in await self._rows():
            if row.key == _SEEN + self._name:
                self._etag = row.etag
            if self._alone:
                readable(row.key, row.content, self._recall, None)

    def _recall(self, record: Record) -> None:
        self._workers.recall(record["services"])
        self._deliveries.recall(record.get("deliveries", ()))
        for service, seconds in record.get("refused", {}).items():
            self._workers.refused.setdefault(service, instant_of(seconds))

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(EVERY.total_seconds())
            try:
                await self.write()
            except LedgerError as error:
                log.info("who was seen is written down later: %s", error)

    async def write(self) -> None:
        """Nothing is written where there is no news."""
        untaken = {name: seconds_of(at) for name, at in self._workers.untaken().items()}
        refused = {name: seconds_of(at) for name, at in self._workers.refused.items()}
        requests, deliveries = self._refusals.record(), self._deliveries.record()
        besides = (
            *(sorted(self._unclaimed()), dict(self._troubles()), untaken, refused),
            *(requests, deliveries),
        )
        troubled = bool(besides[1] or untaken) and not self._alone
        if not self._workers.changed and besides == self._wrote and not troubled:
            return
        record = {
            "at": self._now().timestamp(),
            "services": self._workers.record(),
            "unclaimed": besides[0],
            "troubles": besides[1],
            "untaken": untaken,
            "refused": refused,
            "refusals": requests,
            "deliveries": deliveries,
        }
        self._workers.changed = False
        self._etag = await self._store.put(LeaseRow(_SEEN + self._name, "", record, self._etag))
        self._wrote = besides
        if self._etag is None:  # an answer was lost: read what is there, and write it the next time
            await self.recall()
        await self._sweep()

    async def _sweep(self) -> None:
        """Once a day what old processes left is deleted."""
        now = self._now()
        if self._swept_at is not None and now - self._swept_at < timedelta(days=1):
            return
        self._swept_at = now
        for row in await self._rows():
            if readable(row.key, row.content, _written_at, 0.0) < (now - KEPT).timestamp():
                await self._store.delete(row)


def _written_at(record: Record) -> float:
    return float(record["at"])
