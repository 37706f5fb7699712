"""The indexes of the memory ledger: entries that are ready, and jobs that are due."""

from collections import defaultdict
from datetime import datetime
from heapq import heappop, heappush
from itertools import islice


class ReadyPositions:
    """Positions in order, with cheap removal: the dead are skipped, and swept when they are many."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, str]] = {}
        self._positions: list[int] = []
        self._start = 0

    def add(self, position: int, job_id: str, step_id: str) -> None:
        self.entries[position] = (job_id, step_id)
        self._positions.append(position)

    def remove(self, position: int) -> None:
        self.entries.pop(position, None)
        if len(self._positions) > 2 * len(self.entries) + 16:
            self._positions = [p for p in self._positions if p in self.entries]
            self._start = 0
        while (
            self._start < len(self._positions) and self._positions[self._start] not in self.entries
        ):
            self._start += 1

    def first(self, limit: int) -> list[int]:
        live = (p for p in islice(self._positions, self._start, None) if p in self.entries)
        return list(islice(live, limit))


class DueIndex:
    """A heap for each lane; entries that no longer hold are dropped when they come up."""

    def __init__(self) -> None:
        self.moments: dict[str, datetime] = {}
        self._heaps: defaultdict[int, list[tuple[datetime, str]]] = defaultdict(list)

    def set(self, lane: int, job_id: str, due_at: datetime | None) -> None:
        if due_at is None:
            self.moments.pop(job_id, None)
        elif self.moments.get(job_id) != due_at:
            self.moments[job_id] = due_at
            heappush(self._heaps[lane], (due_at, job_id))

    def first(
        self,
        lane: int,
        before: datetime | None,
        limit: int,
        after: tuple[datetime, str] | None = None,
    ) -> list[tuple[datetime, str]]:
        if after is not None:
            return self._after(lane, before, limit, after)
        heap, seen = self._heaps[lane], set[str]()
        found: list[tuple[datetime, str]] = []
        while heap and len(found) < limit and (before is None or heap[0][0] <= before):
            due_at, job_id = heappop(heap)
            if self.moments.get(job_id) == due_at and job_id not in seen:
                seen.add(job_id)
                found.append((due_at, job_id))
        for item in found:
            heappush(heap, item)
        return found

    def _after(
        self, lane: int, before: datetime | None, limit: int, after: tuple[datetime, str]
    ) -> list[tuple[datetime, str]]:
        holding = {item for item in self._heaps[lane] if self.moments.get(item[1]) == item[0]}
        wanted = (i for i in holding if i > after and (before is None or i[0] <= before))
        return sorted(wanted)[:limit]
