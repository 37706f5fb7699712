"""Failures in groups: every failed attempt is counted where its fingerprint leads, by tenant.

It listens to commits. What it counts waits in memory for a few seconds and is then added to the notes of
the groups, so that a success costs nothing, a failure a few dictionary lookups, and the ledger one write
for each group that failed since. A process that dies loses what it has not written: some seconds of counts.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from lucius.core.effects import Committed
from lucius.core.errors import LedgerError
from lucius.core.job import Job, Step, StepState
from lucius.core.text import StepFailure, failure_of, normal
from lucius.ports.failures import FailureGroup
from lucius.ports.leases import LeaseRow, LeaseStore

log = logging.getLogger("lucius.insight")

_FAILURES: Final = "failures|"
EVERY: Final = timedelta(seconds=10)
MOST_GROUPS: Final = 500
"""Beyond it, groups are forgotten: first those that happened once, or not for a day, the oldest first."""
MOST_NEW: Final = 2000
"""Groups that wait to be written."""
MOST_OF_A_SERVICE: Final = 100
"""New groups of one service between two writes, of one tenant: a flood leaves room for failures of others."""
MOST_OF_A_TENANT: Final = 200
"""New groups of one tenant between two writes, of all services."""
GUARDED: Final = timedelta(days=1)
MOST_TENANTS: Final = 100
"""Of a group; what others failed is counted together, and shown to nobody who is bound to tenants."""
OTHERS: Final = "(others)"
BUCKET: Final = timedelta(minutes=5)
BUCKETS: Final = 12
"""An hour of trend."""


@dataclass(slots=True)
class TenantFailures:
    """What one tenant has in a group: `recent` is by five minutes."""

    count: int
    first: float
    last: float
    example: str
    recent: dict[int, int] = field(default_factory=dict)

    def add(self, other: "TenantFailures") -> None:
        self.count += other.count
        self.first = min(self.first, other.first)
        if other.last >= self.last:
            self.last, self.example = other.last, other.example
        for bucket, count in other.recent.items():
            self.recent[bucket] = self.recent.get(bucket, 0) + count
        newest = max(self.recent, default=0)
        self.recent = {b: count for b, count in self.recent.items() if b > newest - BUCKETS}


@dataclass(slots=True)
class GroupFailures:
    step_id: str
    service: str
    code: str
    message: str
    place: str | None
    tenants: dict[str, TenantFailures] = field(default_factory=dict)

    @property
    def last(self) -> float:
        return max(cell.last for cell in self.tenants.values())

    def add(self, tenant_id: str, cell: TenantFailures) -> None:
        known = self.tenants.get(tenant_id)
        if known is not None:
            known.add(cell)
            return
        self.tenants[tenant_id] = cell
        if len(self.tenants) > MOST_TENANTS:
            named = (tenant for tenant in self.tenants if tenant != OTHERS)
            oldest = min(named, key=lambda tenant: self.tenants[tenant].last)
            self.add(OTHERS, self.tenants.pop(oldest))


class FailureStore:
    """`listen` to commits, `run` to write down; `groups` reads what all processes wrote, and what is new."""

    def __init__(self, store: LeaseStore, *, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._new: dict[str, GroupFailures] = {}
        self._opened: Counter[tuple[str, ...]] = Counter()
        """How many of the new groups were opened by a tenant, and by a tenant and service."""

    # -- counting ----------------------------------------------------------------------------

    def listen(self, commit: Committed) -> None:
        if commit.before is None:
            return
        job, earlier = commit.job, commit.before.steps
        for index in commit.steps:
            step = job.steps[index]
            if step.fault is not None and _has_failed(earlier[index], step):
                planned = job.plan.steps[index]
                self._count(job, failure_of(planned.step_id, planned.service, step.fault))

    def _count(self, job: Job, failure: StepFailure) -> None:
        group = self._new.get(failure.group)
        if group is None:
            share, of_service = (job.tenant_id,), (job.tenant_id, failure.service)
            full = len(self._new) >= MOST_NEW or self._opened[share] >= MOST_OF_A_TENANT
            if full or self._opened[of_service] >= MOST_OF_A_SERVICE:
                return  # a flood of messages that are all different says nothing as groups
            self._opened.update((share, of_service))
            message = normal(failure.message)
            group = self._new[failure.group] = GroupFailures(
                failure.step_id, failure.service, failure.code, message, failure.place
            )
        at = job.updated_at.timestamp()
        cell = TenantFailures(1, at, at, job.job_id, {_bucket(at): 1})
        group.add(job.tenant_id, cell)

    # -- writing -----------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(EVERY.total_seconds())
            try:
                await self.write()
            except LedgerError as error:
                log.info("failures are written down later: %s", error)

    async def write(self) -> None:
        """What someone else has written meanwhile is added to the next time."""
        if not self._new:
            return
        stored = await self._rows()
        self._opened.clear()
        for name in list(self._new):
            group, written = self._new.pop(name), False
            try:
                written = await self._add(stored.get(name, LeaseRow(_FAILURES + name, "")), group)
            finally:
                if not written:
                    _merge(self._new.setdefault(name, _empty(group)), group)
        await self._drop_oldest(stored)

    async def _add(self, row: LeaseRow, group: GroupFailures) -> bool:
        known = _read(row.content) if row.etag is not None else None
        total = known if known is not None else _empty(group)
        _merge(total, group)
        kept = LeaseRow(row.key, "", _record(total), row.etag)
        return await self._store.put(kept) is not None

    async def _drop_oldest(self, stored: Mapping[str, LeaseRow]) -> None:
        too_many = len(stored) - MOST_GROUPS
        if too_many > 0:
            recent = (self._now() - GUARDED).timestamp()
            groups = _readable(stored)
            for name in [*_by_share(groups, recent), *(stored.keys() - groups)][-too_many:]:
                await self._store.delete(stored[name])

    async def _rows(self) -> dict[str, LeaseRow]:
        rows = await self._store.rows()
        return {r.key.removeprefix(_FAILURES): r for r in rows if r.key.startswith(_FAILURES)}

    # -- reading -----------------------------------------------------------------------------

    async def groups(self, tenants: Collection[str] | None) -> list[FailureGroup]:
        """Those with failures of these tenants (None: of all), the latest first."""
        found = _readable(await self._rows())
        for name, group in self._new.items():
            _merge(found.setdefault(name, _empty(group)), group)
        views = [self._view(name, group, tenants) for name, group in found.items()]
        return sorted((v for v in views if v is not None), key=lambda v: v.last_at, reverse=True)

    def _view(
        self, name: str, group: GroupFailures, tenants: Collection[str] | None
    ) -> FailureGroup | None:
        seen = dict(group.tenants)
        if tenants is not None:
            seen = {t: c for t, c in seen.items() if t in tenants and t != OTHERS}
        if not seen:
            return None
        latest = max(seen.values(), key=lambda cell: cell.last)
        this = _bucket(self._now().timestamp())
        hour = range(this - BUCKETS + 1, this + 1)
        return FailureGroup(
            name,
            group.step_id,
            group.service,
            group.code,
            group.message,
            group.place,
            sum(cell.count for cell in seen.values()),
            _instant(min(cell.first for cell in seen.values())),
            _instant(latest.last),
            tuple(sorted(seen)),
            tuple(sum(cell.recent.get(each, 0) for cell in seen.values()) for each in hour),
            latest.example,
        )


def _by_share(groups: Mapping[str, GroupFailures], recent: float) -> list[str]:
    """The groups that are kept longest come first: tenants take turns, each with its worthiest group.

    A group of several tenants counts for the one that has the fewest, which so loses none to the others.
    """
    several = Counter(tenant for group in groups.values() for tenant in group.tenants)
    turn: Counter[str] = Counter()
    order: list[tuple[int, str]] = []
    for name in sorted(groups, key=lambda each: _worth(groups[each], recent), reverse=True):
        owner = min(groups[name].tenants, key=lambda tenant: several[tenant])
        turn[owner] += 1
        order.append((turn[owner], name))
    return [name for _, name in sorted(order, key=lambda each: each[0])]


def _worth(group: GroupFailures, recent: float) -> tuple[bool, float]:
    """What happens again and again outlives a flood of texts of which none comes twice."""
    again = sum(cell.count for cell in group.tenants.values()) > 1
    return again and group.last >= recent, group.last


def _has_failed(earlier: Step, step: Step) -> bool:
    """An attempt was used up, or the step was given up."""
    given_up = step.state is StepState.FAILED_FINAL and earlier.state is not step.state
    return step.used > earlier.used or given_up


def _bucket(seconds: float) -> int:
    return int(seconds // BUCKET.total_seconds())


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _empty(group: GroupFailures) -> GroupFailures:
    return replace(group, tenants={})


def _merge(into: GroupFailures, group: GroupFailures) -> None:
    for tenant_id, cell in group.tenants.items():
        into.add(tenant_id, _copy(cell))


def _copy(cell: TenantFailures) -> TenantFailures:
    return TenantFailures(cell.count, cell.first, cell.last, cell.example, dict(cell.recent))


def _record(group: GroupFailures) -> dict[str, Any]:
    return {
        "what": [group.step_id, group.service, group.code, group.message, group.place],
        "tenants": {
            tenant_id: [c.count, c.first, c.last, c.example, [*c.recent.items()]]
            for tenant_id, c in group.tenants.items()
        },
    }


def _readable(rows: Mapping[str, LeaseRow]) -> dict[str, GroupFailures]:
    read = {name: _read(row.content) for name, row in rows.items()}
    return {name: group for name, group in read.items() if group is not None}


def _read(record: Mapping[str, Any]) -> GroupFailures | None:
    """None: the note says nothing, or cannot be read. It hides no other group, and is written over."""
    try:
        group = GroupFailures(*record["what"])
        for tenant_id, (count, first, last, example, recent) in record["tenants"].items():
            buckets = {int(bucket): int(number) for bucket, number in recent}
            group.tenants[tenant_id] = TenantFailures(count, first, last, example, buckets)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        log.warning("a note of failures cannot be read: %r", error)
        return None
    return group if group.tenants else None
