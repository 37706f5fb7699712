"""The dispatch window and the turn-taking of tenants, by themselves."""

from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import cast

import pytest

from lucius.engines.outbox.releases import PAGE, ReadyQueues, Waiting
from lucius.engines.outbox.window import FIRST, PASSES, Window
from lucius.engines.outbox.windows import Windows
from lucius.ports.ledger import Ledger, ReadyEntry, ReadyQueue

KEY = ("ocr", 3)
A = "tenant_a"


class Filled:
    """A window that one tenant keeps full."""

    def __init__(self) -> None:
        self.now = 0.0
        self.windows = Windows(lambda: self.now, by_mode=False)
        self.window = self.windows.of(KEY)
        self._leases = count()
        self._out: deque[str] = deque()

    def fill(self) -> None:
        while self.windows.room(KEY, A):
            self._out.append(f"lease {next(self._leases)}")
            self.windows.opened(KEY, A, self._out[-1])

    def acknowledged(self, delay: float) -> None:
        """The oldest is, as if it had been out for so long."""
        lease = self._out.popleft()
        self.windows._open[lease].since = self.now - delay
        self.windows.acknowledged(lease)


def test_a_window_grows_while_acks_come_back_at_once() -> None:
    filled = Filled()
    for _ in range(200):
        filled.fill()
        filled.now += 0.01
        filled.acknowledged(0.005)
    assert filled.window.limit > 4 * FIRST


def test_a_window_shrinks_to_a_short_queue_when_a_service_is_the_bottleneck() -> None:
    filled, rate = Filled(), 50.0
    for _ in range(20_000):
        filled.fill()
        filled.now += 1 / rate
        filled.acknowledged(filled.window.limit / rate)
    assert 1 <= filled.window.limit <= 12


def test_a_window_that_is_not_used_does_not_grow() -> None:
    windows = Windows(lambda: 0.0, by_mode=False)
    for number in range(100):
        windows.opened(KEY, A, f"lease {number}")
        windows.acknowledged(f"lease {number}")
    assert windows.of(KEY).limit == FIRST


def test_a_silent_tenant_has_one_out_at_a_time_until_it_is_heard() -> None:
    windows = Windows(lambda: 0.0, by_mode=False)
    for lease in ("silent", "next"):
        windows.opened(KEY, A, lease)
    windows.timed_out("silent")
    assert not windows.room(KEY, A), "one is out"
    windows.timed_out("next")
    assert windows.room(KEY, A)
    windows.opened(KEY, A, "last")
    windows.acknowledged("last")
    windows.opened(KEY, A, "heard")
    assert windows.room(KEY, A)


def test_a_tenant_whose_directive_others_pass_by_has_no_more_out_until_it_is_heard() -> None:
    window = Window()
    slow, quick = window.take("slow"), window.take("quick")
    window.enqueue("slow-1", slow)
    for number in range(PASSES + 2 * len(window.flows)):
        assert window.room("slow"), f"after {number}"
        window.heard(quick)
    window.heard(quick)
    assert not window.room("slow")
    assert window.room("quick")
    window.dequeue("slow-1", slow)
    slow.waiting -= 1
    assert window.room("slow")


def test_a_window_is_closed_while_the_broker_is_down() -> None:
    windows = Windows(lambda: 0.0, by_mode=False)
    assert windows.room(KEY, A)
    windows.close()
    assert not windows.room(KEY, A)


def test_a_directive_is_queued_behind_the_work_of_its_service_on_any_lane() -> None:
    now = 0.0
    windows = Windows(lambda: now, by_mode=False)
    windows.opened(KEY, A, "waits")
    assert not windows.queued("waits"), "nothing of the service is in progress"
    windows.runs(("ocr", 9), A, "at work")
    assert windows.queued("waits")
    windows.rests("at work", freed=True)
    assert windows.queued("waits"), "whoever takes the free slot has said so, and is not heard yet"
    now = 2.0
    assert not windows.queued("waits")
    assert not windows.queued("unknown")


def test_a_directive_that_was_overtaken_or_handed_out_is_not_queued() -> None:
    windows = Windows(lambda: 0.0, by_mode=False)
    windows.runs(KEY, A, "at work")
    for lease in ("lost", "taken", "handed out"):
        windows.opened(KEY, A, lease)
    windows.acknowledged("taken")
    assert [windows.queued(lease) for lease in ("lost", "handed out")] == [False, True]
    windows.handed_out("handed out", 0, spare=False)
    assert not windows.queued("handed out")
    for _ in "12":
        windows.published("lost")
    assert windows.queued("lost"), "published again, it is at the end of the queue"


def test_a_lease_counts_once_however_often_it_is_reported() -> None:
    windows = Windows(lambda: 0.0, by_mode=False)
    windows.opened(KEY, A, "lease")
    windows.opened(KEY, A, "lease")
    assert windows.of(KEY).open == 1
    assert windows.acknowledged("lease") == KEY
    assert windows.acknowledged("lease") is None
    assert windows.of(KEY).open == 0


class Backlog:
    """As much of a ledger as the ready queues ask for."""

    def __init__(self, held: dict[str, int]) -> None:
        self.rows = [
            ReadyEntry(n, f"{tenant}-{n}", "ocr", *KEY, tenant)
            for tenant, count in held.items()
            for n in range(1, count + 1)
        ]

    async def ready_queues(self, lanes: object) -> Sequence[ReadyQueue]:
        return [
            ReadyQueue(*KEY, tenant, 1) for tenant in dict.fromkeys(r.tenant_id for r in self.rows)
        ]

    async def ready(
        self, service: str, lane: int, tenant_id: str, limit: int
    ) -> Sequence[ReadyEntry]:
        return [row for row in self.rows if row.tenant_id == tenant_id][:limit]

    def queues(self) -> ReadyQueues:
        return ReadyQueues(cast(Ledger, self))


async def take_next(queues: ReadyQueues) -> Waiting | None:
    """The next of whoever comes first."""
    tenant_id = next(iter(queues.tenants(KEY)), None)
    return await queues.take(KEY, tenant_id) if tenant_id is not None else None


async def take_all(queues: ReadyQueues, backlog: Backlog) -> list[str]:
    taken: list[str] = []
    while (waiting := await take_next(queues)) is not None:
        taken.append(waiting.job_id)
        backlog.rows = [row for row in backlog.rows if row.job_id != waiting.job_id]
        queues.settle(waiting)
    return taken


async def test_tenants_take_turns_whatever_their_backlog() -> None:
    backlog = Backlog({"large": 5, "small": 2})
    queues = backlog.queues()
    await queues.recover({3})
    assert await take_all(queues, backlog) == [
        "large-1", "small-1", "large-2", "small-2", "large-3", "large-4", "large-5",
    ]  # fmt: skip


@pytest.mark.parametrize("held", [PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
async def test_a_backlog_larger_than_a_page_is_taken_whole_and_in_order(held: int) -> None:
    backlog = Backlog({"large": held})
    queues = backlog.queues()
    await queues.recover({3})
    assert await take_all(queues, backlog) == [f"large-{n}" for n in range(1, held + 1)]
    assert not queues.waits(KEY)


async def test_what_is_being_released_is_not_taken_twice_by_a_reload() -> None:
    backlog = Backlog({"large": PAGE + 10})
    queues = backlog.queues()
    await queues.recover({3})
    taken = [await take_next(queues) for _ in range(PAGE + 10)]
    assert len({w.job_id for w in taken if w is not None}) == PAGE + 10
    assert await take_next(queues) is None


async def test_entries_added_beyond_a_page_are_found_in_the_ledger_again() -> None:
    backlog = Backlog({"large": PAGE + 5})
    queues = backlog.queues()
    for row in backlog.rows:
        queues.add(KEY, "large", Waiting(row.job_id, "ocr"))
    assert len(await take_all(queues, backlog)) == PAGE + 5
