"""The dispatch window and the turn-taking of tenants, by themselves."""

from collections import Counter, deque
from collections.abc import Sequence
from itertools import count
from typing import cast

import pytest

from lucius.engine.releases import PAGE, ReadyQueues, Waiting
from lucius.engine.windows import LEAST, LONGEST, PASSES, SHORTEST, Windows
from lucius.ports.ledger import Ledger, ReadyEntry, ReadyQueue

KEY = ("ocr", 3)
A, B = "tenant_a", "tenant_b"


class Filled:
    """A window that tenants keep full, in front of a service that takes them in order at its own pace."""

    def __init__(self, *tenants: str, trip: float = 0.0) -> None:
        self.now = 0.0
        self.windows = Windows(lambda: self.now, by_mode=False, elsewhere=lambda line: False)
        self.tenants = tenants
        self.trip = trip
        """Seconds that a directive and its ACK are under way, whatever the service does."""
        self.out: deque[tuple[str, str, float]] = deque()
        self.taken = Counter[str]()
        self._leases = count()

    def fill(self) -> None:
        """By turns."""
        while served := [t for t in self.tenants if self.windows.has_capacity("ocr", t)][:1]:
            self.tenants = (*(t for t in self.tenants if t not in served), *served)
            lease = f"lease {next(self._leases)}"
            self.out.append((served[0], lease, self.now))
            self.windows.opened(KEY, served[0], lease, "job")

    def work(self, rate: float, seconds: float) -> None:
        """Take so many a second, none before it has made its way."""
        until = self.now + seconds
        while self.now < until:
            self.fill()
            self.now += 1 / rate
            if self.out and self.now - self.out[0][2] >= self.trip:
                tenant_id, lease, sent = self.out.popleft()
                self.windows._open[lease].since = sent + self.trip / 2
                self.windows._open[lease].answered_at = self.now - self.trip / 2
                self.windows.acknowledged(lease)
                self.taken[tenant_id] += 1

    @property
    def waiting(self) -> int:
        return self.windows.of("ocr").waiting


@pytest.mark.parametrize("trip", [0.0, 0.05, 0.3, 1.0])
def test_the_window_keeps_a_quick_service_busy_however_long_the_way(trip: float) -> None:
    filled = Filled(A, trip=trip)
    filled.work(200, 20)
    filled.taken.clear()
    filled.work(200, 10)
    assert filled.taken[A] > 0.9 * 10 * 200


@pytest.mark.parametrize("rate", [1.0, 50.0, 1000.0])
def test_no_more_wait_than_the_service_takes_in_a_moment(rate: float) -> None:
    filled = Filled(A)
    filled.work(rate, 30)
    assert filled.waiting <= max(LEAST, 2 * SHORTEST * rate + 1)


def test_a_service_that_takes_nothing_any_more_is_sent_nothing_more() -> None:
    filled = Filled(A)
    filled.work(1000, 5)
    for _ in range(filled.waiting):
        filled.now += 1
        filled.windows.acknowledged(filled.out.popleft()[1])
    filled.now += 2 * LONGEST
    filled.fill()
    assert filled.waiting == LEAST


def test_a_window_on_all_lanes_is_one() -> None:
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=lambda line: False)
    for lane in range(16):
        if windows.has_capacity("ocr", A):
            windows.opened(("ocr", lane), A, f"lease {lane}", "job")
    assert sum(released for released, _ in windows.snapshot().values()) == LEAST


@pytest.mark.parametrize("rate", [0.1, 5.0, 500.0])
def test_a_tenant_that_comes_later_soon_has_as_much_as_the_first(rate: float) -> None:
    filled = Filled(A)
    filled.work(rate, 500 / rate)
    for number in range(LEAST):
        filled.windows.opened(KEY, "stuck", f"stuck {number}", "job")
    filled.tenants = (A, B)
    filled.work(rate, 2000 / rate)
    filled.taken.clear()
    filled.work(rate, 1000 / rate)
    assert filled.taken[B] > 0.4 * filled.taken.total()


def test_a_silent_tenant_has_one_out_at_a_time_until_it_is_heard() -> None:
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=lambda line: False)
    for lease in ("silent", "next"):
        windows.opened(KEY, A, lease, "job")
    windows.timed_out("silent")
    assert not windows.has_capacity("ocr", A), "one is out"
    windows.timed_out("next")
    assert windows.has_capacity("ocr", A)
    windows.opened(KEY, A, "last", "job")
    windows.acknowledged("last")
    windows.opened(KEY, A, "heard", "job")
    assert windows.has_capacity("ocr", A)


def test_a_tenant_that_nobody_takes_has_no_more_out_while_others_are_taken() -> None:
    filled = Filled(B)
    for number in range(LEAST):
        filled.windows.opened(KEY, A, f"slow {number}", "job")
    filled.work(100, 10)
    assert filled.windows.has_capacity("ocr", B)
    assert not filled.windows.has_capacity("ocr", A)


def test_a_directive_is_queued_behind_the_work_of_its_service_on_any_lane() -> None:
    now = 0.0
    windows = Windows(lambda: now, by_mode=False, elsewhere=lambda line: False)
    windows.opened(KEY, A, "waits", "job")
    assert not windows.queued("waits"), "nothing of the service is in progress"
    windows.runs(("ocr", 9), B, "at work", "job", 60)
    assert windows.queued("waits")
    windows.rests("at work", freed=True)
    assert windows.queued("waits"), "whoever takes the free slot has said so, and is not heard yet"
    now = 2.0
    assert not windows.queued("waits")
    assert not windows.queued("unknown")


def test_work_on_lanes_of_other_processes_keeps_it_waiting_too() -> None:
    busy = {"ocr"}
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=busy.__contains__)
    windows.opened(KEY, A, "waits", "job")
    assert windows.queued("waits")
    busy.clear()
    assert not windows.queued("waits")


def test_a_directive_that_many_of_others_pass_by_is_not_queued_behind_them() -> None:
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=lambda line: False)
    windows.runs(KEY, B, "at work", "job", 60)
    windows.opened(KEY, A, "passed", "job")
    for number in range(PASSES + 2):
        windows.opened(KEY, B, f"taken {number}", "job")
        windows.acknowledged(f"taken {number}")
    assert windows.queued("passed")
    windows.opened(KEY, B, "one more", "job")
    windows.acknowledged("one more")
    assert not windows.queued("passed")
    windows.runs(KEY, A, "its own", "job", 60)
    assert windows.queued("passed"), "the worker of this tenant may be slow"


def test_a_directive_that_was_overtaken_or_handed_out_is_not_queued() -> None:
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=lambda line: False)
    windows.runs(KEY, A, "at work", "job", 60)
    for lease in ("lost", "taken", "handed out"):
        windows.opened(KEY, A, lease, "job")
    windows.opened(("ocr", 4), A, "on another lane", "job")
    windows.acknowledged("taken")
    assert [windows.queued(lease) for lease in ("lost", "handed out")] == [False, True]
    windows.acknowledged("on another lane")
    assert windows.queued("handed out"), "lanes are taken in any order"
    windows.handed_out("handed out", 0)
    assert not windows.queued("handed out")
    for _ in "12":
        windows.published("lost")
    assert windows.queued("lost"), "published again, it is at the end of the queue"


def test_a_lease_counts_once_however_often_it_is_reported() -> None:
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=lambda line: False)
    windows.opened(KEY, A, "lease", "job")
    windows.opened(KEY, A, "lease", "job")
    assert windows.snapshot() == {KEY: (1, 0)}
    assert windows.acknowledged("lease") == KEY
    assert windows.acknowledged("lease") is None
    assert windows.snapshot() == {}


def test_a_tenant_is_forgotten_once_nothing_of_it_is_out() -> None:
    now = 0.0
    windows = Windows(lambda: now, by_mode=False, elsewhere=lambda line: False)
    for number in range(100):
        now += 1
        windows.opened(KEY, f"tenant-{number}", f"lease {number}", "job")
        windows.acknowledged(f"lease {number}")
    assert len(windows.of("ocr").shares) <= 2


def test_what_was_out_on_a_lane_that_is_lost_takes_no_room() -> None:
    windows = Windows(lambda: 0.0, by_mode=False, elsewhere=lambda line: False)
    for lane in (3, 4):
        windows.opened(("ocr", lane), A, f"out {lane}", "job")
        windows.runs(("ocr", lane), A, f"at work {lane}", "job", 60)
    windows.forget(3)
    assert windows.snapshot() == {("ocr", 4): (1, 1)}
    assert windows.of("ocr").waiting == 1


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
        return ReadyQueues(cast(Ledger, self), lambda line: line)


async def take_next(queues: ReadyQueues) -> Waiting | None:
    """The next of whoever comes first."""
    for tenant_id, waiting in queues.ring("ocr").items():
        return await queues.take(next(iter(waiting)), tenant_id)
    return None


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
    assert not queues.ring("ocr")


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


async def test_lanes_of_a_tenant_take_turns_and_give_it_no_more_turns() -> None:
    queues = Backlog({}).queues()
    for lane in (1, 2):
        for number in range(2):
            queues.add(("ocr", lane), "wide", Waiting(f"wide-{lane}-{number}", "ocr"))
    for number in range(2):
        queues.add(KEY, "narrow", Waiting(f"narrow-{number}", "ocr"))
    taken = [await take_next(queues) for _ in range(6)]
    assert [each.job_id for each in taken if each is not None] == [
        "wide-1-0", "narrow-0", "wide-2-0", "narrow-1", "wide-1-1", "wide-2-1",
    ]  # fmt: skip
