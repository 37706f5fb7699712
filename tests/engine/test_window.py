"""The dispatch window and the turn-taking of tenants, by themselves."""

from collections.abc import Sequence
from typing import cast

import pytest

from lucius.engines.outbox.ready import PAGE, ReadyQueues, Waiting
from lucius.engines.outbox.window import FIRST, Window, Windows
from lucius.ports.ledger import Ledger, ReadyEntry, ReadyQueue

KEY = ("ocr", 3)


def full(window: Window) -> None:
    window.open = int(window.limit)


def test_a_window_grows_while_acks_come_back_at_once() -> None:
    window = Window()
    for number in range(200):
        full(window)
        window.acknowledged(0.005, number * 0.01)
    assert window.limit > 4 * FIRST


def test_a_window_shrinks_to_a_short_queue_when_a_service_is_the_bottleneck() -> None:
    window = Window()
    rate = 50.0
    for number in range(20_000):
        full(window)
        window.acknowledged(window.limit / rate, number / rate)
    assert 1 <= window.limit <= 12


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = Window()
    for number in range(100):
        window.open = 0
        window.acknowledged(0.001, float(number))
    assert window.limit == FIRST


def test_silence_halves_a_window_and_leaves_room_for_one() -> None:
    window = Window()
    for _ in range(20):
        window.timed_out()
    assert window.limit == 1
    assert window.room


def test_a_window_is_closed_while_the_broker_is_down() -> None:
    windows = Windows(lambda: 0.0)
    assert windows.room(KEY)
    windows.closed = True
    assert not windows.room(KEY)


def test_a_directive_is_queued_behind_the_work_of_its_service_on_any_lane() -> None:
    windows = Windows(lambda: 0.0)
    windows.opened(KEY, "waits")
    assert not windows.queued("waits"), "nothing of the service is in progress"
    windows.ran(("ocr", 9), 1)
    assert windows.queued("waits")
    windows.ran(("ocr", 9), -1)
    assert not windows.queued("waits")
    assert not windows.queued("unknown")


def test_a_directive_that_was_overtaken_or_handed_out_is_not_queued() -> None:
    windows = Windows(lambda: 0.0)
    windows.ran(KEY, 1)
    for lease in ("lost", "taken", "handed out"):
        windows.opened(KEY, lease)
    windows.acknowledged("taken")
    assert [windows.queued(lease) for lease in ("lost", "handed out")] == [False, True]
    windows.handed_out("handed out")
    assert not windows.queued("handed out")
    windows.published("lost")
    assert windows.queued("lost"), "published again, it is at the end of the queue"


def test_a_lease_counts_once_however_often_it_is_reported() -> None:
    windows = Windows(lambda: 0.0)
    windows.opened(KEY, "lease")
    windows.opened(KEY, "lease")
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
        self, service: str, lane: int, tenant_id: str, after: int, limit: int
    ) -> Sequence[ReadyEntry]:
        mine = [row for row in self.rows if row.tenant_id == tenant_id and row.position > after]
        return mine[:limit]

    def queues(self) -> ReadyQueues:
        return ReadyQueues(cast(Ledger, self))


async def take_all(queues: ReadyQueues, backlog: Backlog) -> list[str]:
    taken: list[str] = []
    while (waiting := await queues.take(KEY)) is not None:
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
    taken = [await queues.take(KEY) for _ in range(PAGE + 10)]
    assert len({w.job_id for w in taken if w is not None}) == PAGE + 10
    assert await queues.take(KEY) is None


async def test_entries_added_beyond_a_page_are_found_in_the_ledger_again() -> None:
    backlog = Backlog({"large": PAGE + 5})
    queues = backlog.queues()
    for row in backlog.rows:
        queues.add(KEY, "large", Waiting(row.job_id, "ocr"))
    assert len(await take_all(queues, backlog)) == PAGE + 5
