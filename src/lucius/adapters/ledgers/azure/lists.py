"""Lists of jobs: those of live and of ended jobs of each tenant, newest first, then read one by one."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.heads import Layout
from lucius.adapters.ledgers.azure.store import DamagedRows, Row, Store
from lucius.adapters.ledgers.azure.tenants import ENDED, LIVE, Tenants
from lucius.adapters.ledgers.rules import PageEnd, cursor_of, matches, place_of
from lucius.adapters.ledgers.stored.json_form import micros
from lucius.core.job import TERMINAL_JOB, Job, JobState
from lucius.core.limits import tenant_fits
from lucius.core.record import record
from lucius.ports.ledger import JobPage, JobQuery, looks_inside

MOST_READ: Final = 500
"""Jobs that are read for one page, however few of them match."""
MOST_ROWS: Final = 1000
"""Rows of a list in one request."""
AT_ONCE: Final = 16
LIVE_STATES: Final = frozenset(JobState) - frozenset(TERMINAL_JOB)

Load = Callable[[str], Awaitable[Job | None]]
"""None: it is gone, or cannot be read here."""


@record
class Listed:
    place: PageEnd
    job_id: str
    tenant_id: str
    live: bool
    state: str | None = None


class Lists:
    def __init__(
        self, store: Store, table: str, tenants: Tenants, rows: Layout, load: Load
    ) -> None:
        self._store = store
        self._table = table
        self._tenants = tenants
        self._rows = rows
        self._load = load
        self._damaged = DamagedRows()

    async def page(self, query: JobQuery) -> JobPage:
        after = place_of(query)
        found = self._listed(query, after)
        jobs, read, last = list[Job](), 0, after
        while len(jobs) < query.limit and read < MOST_READ:
            wanted = min(query.limit - len(jobs), AT_ONCE)
            batch = await _take(found, wanted)
            loaded = await asyncio.gather(*(self._load(each.job_id) for each in batch))
            jobs += [job for job in loaded if job is not None and matches(query, job)]
            read += len(batch)
            last = batch[-1].place if batch else last
            if len(batch) < wanted:
                return JobPage(jobs)
        more = await _take(found, 1)
        return JobPage(jobs, cursor_of(query, last) if more and last is not None else None)

    async def count(self, query: JobQuery) -> int:
        """From the lists alone, unless only some states of live jobs are wanted."""
        if looks_inside(query):
            return await self._count_inside(query)
        total, asked = 0, list[Listed]()
        partly = query.states is not None and not set(query.states) >= LIVE_STATES
        async for each in self._listed(replace(query, limit=MOST_ROWS), None):
            if not (each.live and partly):
                total += 1
                continue
            asked.append(each)
            if len(asked) == AT_ONCE:
                total += await self._in_states(asked, query)
                asked.clear()
        return total + await self._in_states(asked, query)

    async def _in_states(self, live: Sequence[Listed], query: JobQuery) -> int:
        """How many of these live jobs are in one of the states: each is asked."""
        jobs = await asyncio.gather(
            *(self._rows.glance(each.job_id, each.tenant_id) for each in live)
        )
        return sum(job is not None and job.state in (query.states or ()) for job in jobs)

    async def _count_inside(self, query: JobQuery) -> int:
        """What no row of a list has is looked for in every job that matches otherwise."""
        total, asked = 0, replace(query, limit=MOST_READ, cursor=None)
        while True:
            page = await self.page(asked)
            total += len(page.jobs)
            if page.next_cursor is None:
                return total
            asked = replace(asked, cursor=page.next_cursor)

    # -- what is listed ----------------------------------------------------------------------

    async def tenants(self, query: JobQuery) -> Sequence[str]:
        """Those that have ever had a job."""
        wanted = query.tenant_ids
        if wanted is not None and len(wanted) < 2:
            return list(filter(tenant_fits, wanted))  # no other could be stored
        known = await self._tenants.all()
        return known if wanted is None else sorted(set(wanted) & set(known))

    async def _listed(self, query: JobQuery, after: PageEnd | None) -> AsyncIterator[Listed]:
        streams = [
            self._stream(tenant_id, kind, query, after)
            for tenant_id in await self.tenants(query)
            for kind in _kinds(query)
        ]
        last = ""
        async for each in _merged(streams):
            if each.job_id != last:  # it may have ended between two requests
                yield each
            last = each.job_id

    async def _stream(
        self, tenant_id: str, kind: str, query: JobQuery, after: PageEnd | None
    ) -> AsyncIterator[Listed]:
        first, end = _bounds(kind, query, after)
        states = [state.value for state in query.states or () if state in TERMINAL_JOB]
        scan = self._store.scan(
            self._table,
            names.key(tenant_id),
            first,
            end,
            equal=_equal(kind, query, states),
            columns=["created", "no", "job_id", "state"],
            page=min(query.limit + 1, MOST_ROWS),
        )
        async for row in scan:
            if kind == LIVE or query.states is None or row.get("state") in states:
                listed = self._damaged.read(row, partial(_read, tenant_id, kind))
                if listed is not None:
                    yield listed


def _kinds(query: JobQuery) -> Sequence[str]:
    if query.dlq:
        return [ENDED]
    states = None if query.states is None else set(query.states)
    live = [LIVE] if states is None or states & LIVE_STATES else []
    return live + ([ENDED] if states is None or states & set(TERMINAL_JOB) else [])


def _equal(kind: str, query: JobQuery, states: Sequence[str]) -> dict[str, str | bool]:
    """What the service compares by itself, so that the rest is not even sent."""
    equal: dict[str, str | bool] = {}
    if query.request_type is not None:
        equal["request_type"] = query.request_type
    if kind == ENDED and query.dlq:
        equal["dlq"] = True
    if kind == ENDED and len(states) == 1:
        equal["state"] = states[0]
    return equal


def _bounds(kind: str, query: JobQuery, after: PageEnd | None) -> tuple[str, str]:
    """The newest comes first in the order of the keys."""
    first, end = names.prefix(kind), names.past(kind)
    if query.created_to is not None:
        first = max(first, names.key(kind, names.falling(micros(query.created_to) - 1)))
    if after is not None:
        reached = names.key(kind, names.falling(after.created_at), names.falling(after.no))
        first = max(first, names.past(reached))
    if query.created_from is not None:
        end = names.past(names.key(kind, names.falling(micros(query.created_from))))
    return first, end


def _read(tenant_id: str, kind: str, row: Row) -> Listed:
    place = PageEnd(int(row["created"]), int(row["no"]))
    return Listed(place, str(row["job_id"]), tenant_id, kind == LIVE, row.get("state"))


async def _take(found: AsyncIterator[Listed], many: int) -> list[Listed]:
    taken: list[Listed] = []
    while len(taken) < many:
        try:
            taken.append(await anext(found))
        except StopAsyncIteration:
            break
    return taken


async def _merged(streams: Sequence[AsyncIterator[Listed]]) -> AsyncIterator[Listed]:
    """Newest first. At most one page of each is in memory."""
    heap: list[tuple[tuple[int, int], str, int, Listed]] = []

    async def push(number: int) -> None:
        for each in await _take(streams[number], 1):
            order = (-each.place.created_at, -each.place.no)
            heapq.heappush(heap, (order, each.job_id, number, each))

    await asyncio.gather(*(push(number) for number in range(len(streams))))
    while heap:
        _, _, number, each = heapq.heappop(heap)
        yield each
        await push(number)
