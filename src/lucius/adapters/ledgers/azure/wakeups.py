"""The rows of a lane: when each of its jobs is to be looked at, and what is ready for its window.

A row is written before the save that relies on it, and dropped only once nothing does. Drops wait in memory
until a request goes to the same lane, so that most cost none; until then they hide what they drop. A row
that a dead process left is found when it comes up.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from secrets import token_hex
from typing import Any, Final

import orjson

from lucius.adapters.ledgers.azure import names
from lucius.adapters.ledgers.azure.store import (
    MISSING,
    MOST_CHANGES,
    ROW,
    Act,
    Change,
    DamagedRows,
    Refused,
    Row,
    Store,
    Together,
    row_of,
)
from lucius.adapters.ledgers.rules import queue_of
from lucius.adapters.ledgers.stored.job_codec import SCHEMA
from lucius.adapters.ledgers.stored.json_form import MICROSECOND
from lucius.core.errors import LedgerUnavailableError
from lucius.core.job import Job
from lucius.core.plan import FIRST_SHARD
from lucius.core.record import record
from lucius.core.routing import LANES
from lucius.ports.ledger import ReadyEntry

WAKE: Final = "WAKE"
READY: Final = "READY"
LATE_CREATION: Final = timedelta(minutes=10) // MICROSECOND
"""How long a job may take from its announcement to its rows, before it is given up."""
DROPPED_AT_ONCE: Final = 80
"""Drops that wait for a request to their lane, before they make one of their own."""


@record
class Wakeup:
    """A promise to look at a job at a moment; `version` is the one that the writer was about to save."""

    row: str
    lane: int
    due: int
    job_id: str
    version: int
    tenant_id: str
    claim_hash: str
    written: int
    schema: int
    held: bool = False
    """Nothing of that version is with a service. A release writes a row that comes up earlier."""
    ready: tuple[str, ...] = ()
    """The ready rows that were written with it."""


SHARDS: Final = range(LANES * len(FIRST_SHARD))
"""A lane of each engine has rows of its own."""


def partition_of(lane: int) -> str:
    return f"{lane:02}"


def due_of(wakeup: str) -> int:
    """When the row with this key comes up."""
    return int(names.parts_of(wakeup)[1])


def new_wakeup(job: Job, due: int, claim_hash: str, written: int) -> Wakeup:
    return Wakeup(
        new_row(due, job.job_id, job.version),
        job.plan.shard,
        due,
        job.job_id,
        job.version,
        job.tenant_id,
        claim_hash,
        written,
        SCHEMA,
        held=not any(step.out for step in job.steps),
    )


def new_row(due: int, job_id: str, version: int) -> str:
    """No two are alike, so that whoever drops one drops nobody else's."""
    return names.key(WAKE, names.rising(due), job_id, version, token_hex(4))


def ready_row(job: Job, index: int, position: int) -> str:
    queue_name, _, tenant_id = queue_of(job, index)
    step_id = job.plan.steps[index].step_id
    return names.key(READY, queue_name, tenant_id, names.rising(position), job.job_id, step_id)


def entry_of(lane: int, row: str) -> ReadyEntry:
    _, queue_name, tenant_id, position, job_id, step_id = names.parts_of(row)
    return ReadyEntry(int(position), job_id, step_id, queue_name, lane, tenant_id)


def unnamed(lane: int, rows: Iterable[str], wakeup: str, places: Collection[int]) -> list[str]:
    """The rows that a job does not rely on. Its own row names its wake-up row and its places in queues."""
    return [
        row
        for row in rows
        if row != wakeup
        and (not row.startswith(READY) or entry_of(lane, row).position not in places)
    ]


class LaneTable:
    """Rows that are `damaged` are passed over, so that they keep none of the lane's jobs waiting."""

    def __init__(self, store: Store, table: str) -> None:
        self.damaged = DamagedRows()
        self._store = store
        self._table = table
        self._together = Together(store, table)
        self._drops: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._dropping: defaultdict[int, dict[str, None]] = defaultdict(dict)
        """Drops that are under way."""

    # -- writing -----------------------------------------------------------------------------

    async def announce(self, wakeup: Wakeup, ready: Sequence[str]) -> None:
        """Durable when this returns. Drops of the lane go with it, but for rows that are wanted again."""
        partition = partition_of(wakeup.lane)
        for row in ready:
            self._drops[wakeup.lane].pop(row, None)
        rows = [row_of(partition, wakeup.row, _columns(wakeup, ready))]
        rows += [row_of(partition, row, _ready_columns(wakeup)) for row in ready]
        await self._write(wakeup.lane, [Change(Act.UPSERT, row) for row in rows])

    def drop(self, lane: int, rows: Collection[str]) -> None:
        """Later; from now on nobody here sees them. A drop that is under way is not wanted twice."""
        going = self._dropping[lane]
        self._drops[lane].update(dict.fromkeys(row for row in rows if row not in going))

    async def settle(self, lanes: Collection[int], least: int = 1) -> None:
        """Perform the drops of these lanes, where there are so many."""
        for lane in lanes:
            while len(self._drops[lane]) >= least:
                await self._write(lane, [])

    def crowded(self, lane: int) -> bool:
        return len(self._drops[lane]) >= DROPPED_AT_ONCE

    def hides(self, lane: int, row: str) -> bool:
        return row in self._drops[lane] or row in self._dropping[lane]

    async def close(self) -> None:
        await self.settle(list(self._drops))

    async def _write(self, lane: int, changes: Sequence[Change]) -> None:
        """The changes, and as many drops as fit. Others who write to the lane now go with them."""
        waiting, going = self._drops[lane], self._dropping[lane]
        drops = list(waiting)[: MOST_CHANGES - len(changes)]
        for row in drops:
            del waiting[row]
            going[row] = None
        try:
            await self._commit(partition_of(lane), changes, list(drops))
        except BaseException:
            waiting.update(dict.fromkeys(drops))
            raise
        finally:
            for row in drops:
                del going[row]

    async def _commit(self, partition: str, changes: Sequence[Change], drops: list[str]) -> None:
        """A row that is gone already is no fault."""
        while changes or drops:
            gone = [Change(Act.DELETE, row_of(partition, row, {})) for row in drops]
            made = await self._together.commit([*changes, *gone])
            if not isinstance(made, Refused):
                return
            if made.status != MISSING or made.index < len(changes):
                raise LedgerUnavailableError(f"a row of lane {partition} got {made.status}")
            del drops[made.index - len(changes)]

    # -- reading -----------------------------------------------------------------------------

    async def lacks(self, lane: int, rows: Sequence[str]) -> bool:
        """Whether one of them is missing, or damaged. One request a row."""
        partition = partition_of(lane)
        for row in rows:
            found = await self._store.get(self._table, partition, row, ["version"])
            if found is None or self.hides(lane, row) or (partition, row) in self.damaged.named:
                return True
        return False

    async def wakeups(
        self, lane: int, before: int | None = None, page: int = 1000, since: int = -1
    ) -> AsyncIterator[Wakeup]:
        """In the order in which they come up, from `since` on."""
        end = names.past(WAKE) if before is None else names.key(WAKE, names.rising(before + 1))
        first = names.prefix(WAKE) if since < 0 else names.key(WAKE, names.rising(since))
        scan = self._store.scan(self._table, partition_of(lane), first, end, page=page)
        async for row in scan:
            if self.hides(lane, row[ROW]):
                continue
            found = self.damaged.read(row, partial(_wakeup, lane))
            if found is not None:
                yield found

    async def ready(self, lane: int, *queue: str, page: int = 1000) -> AsyncIterator[Row]:
        first = names.prefix(READY, *queue)
        end = names.past(first)
        columns = ["version", "schema"]
        scan = self._store.scan(
            self._table, partition_of(lane), first, end, columns=columns, page=page
        )
        async for row in scan:
            if not self.hides(lane, row[ROW]):
                if self.damaged.read(row, partial(_ready, lane)) is not None:
                    yield row


def _ready(lane: int, row: Row) -> tuple[ReadyEntry, int, int]:
    """What is read of a ready row."""
    return entry_of(lane, row[ROW]), int(row["version"]), int(row["schema"])


def _columns(wakeup: Wakeup, ready: Sequence[str]) -> dict[str, Any]:
    return {
        "job_id": wakeup.job_id,
        "tenant_id": wakeup.tenant_id,
        "claim_hash": wakeup.claim_hash,
        "version": wakeup.version,
        "written": wakeup.written,
        "schema": wakeup.schema,
        "held": wakeup.held,
        "ready": orjson.dumps(list(ready)).decode() if ready else None,
    }


def _ready_columns(wakeup: Wakeup) -> dict[str, Any]:
    return {"version": wakeup.version, "schema": wakeup.schema, "job_id": wakeup.job_id}


def _wakeup(lane: int, row: Row) -> Wakeup:
    return Wakeup(
        row[ROW],
        lane,
        due_of(row[ROW]),
        str(row["job_id"]),
        int(row["version"]),
        str(row["tenant_id"]),
        str(row["claim_hash"]),
        int(row["written"]),
        int(row["schema"]),
        bool(row.get("held")),
        tuple(orjson.loads(row["ready"])) if row.get("ready") else (),
    )


def ready_rows(job: Job, places: dict[str, int]) -> Iterator[str]:
    """The rows of the steps that have a place."""
    for index, step in enumerate(job.plan.steps):
        if step.step_id in places:
            yield ready_row(job, index, places[step.step_id])
