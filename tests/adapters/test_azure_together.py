"""Transactions that several callers share: each has an answer of its own."""

import asyncio
from collections.abc import Sequence

import pytest

from lucius.adapters.ledgers.azure.store import (
    MISSING,
    MOST_CHARACTERS,
    Act,
    Change,
    Etags,
    Refused,
    Together,
    row_of,
)
from lucius.core.errors import LedgerError, LedgerUnavailableError
from tests.memory_tables import MemoryTables


class Slow(MemoryTables):
    """Its first request is answered when the test says so. Text `bad` cannot be stored."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.sizes: list[int] = []
        self.down = False

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        self.sizes.append(len(changes))
        if not self.begun.is_set():
            self.begun.set()
            await self.go_on.wait()
        if self.down:
            raise LedgerUnavailableError("no answer")
        if any(change.row.get("text") == "bad" for change in changes):
            raise LedgerError("the ledger cannot store this")
        return await super().commit(table, changes, once=once)


def insert(row: str, text: str = "good", partition: str = "p") -> Change:
    return Change(Act.INSERT, row_of(partition, row, {"text": text}))


async def together(store: Slow, *wanted: Sequence[Change]) -> list[Etags | Refused | BaseException]:
    """All of them come while the first request is under way."""
    shared = Together(store, "t")
    first = asyncio.ensure_future(shared.commit([insert("first")]))
    await store.begun.wait()
    others = [asyncio.ensure_future(shared.commit(each)) for each in wanted]
    await asyncio.sleep(0)
    store.go_on.set()
    await first
    answers = await asyncio.gather(*others, return_exceptions=True)
    assert shared._queues == {}
    return list(answers)


async def test_those_who_come_meanwhile_share_the_next_transaction() -> None:
    store = Slow()
    answers = await together(store, *([insert(f"r{n}")] for n in range(20)))
    assert store.sizes == [1, 20]
    assert [len(answer) for answer in answers if not isinstance(answer, Refused)] == [1] * 20  # type: ignore[arg-type]
    rows = store.tables["t"]
    assert [answer[0] for answer in answers] == [rows["p", f"r{n}"]["etag"] for n in range(20)]  # type: ignore[index]


async def test_what_is_refused_to_one_concerns_nobody_else() -> None:
    store = Slow()
    absent = [insert("a"), Change(Act.MERGE, row_of("p", "absent", {}))]
    answers = await together(store, [insert("r1")], absent, [insert("r2")])
    assert answers[1] == Refused(1, MISSING)
    assert set(store.tables["t"]) == {("p", "first"), ("p", "r1"), ("p", "r2")}


async def test_what_cannot_be_stored_is_said_to_whose_it_is() -> None:
    store = Slow()
    answers = await together(store, [insert("r1")], [insert("r2", "bad")], [insert("r3")])
    assert [isinstance(answer, LedgerError) for answer in answers] == [False, True, False]
    assert ("p", "r3") in store.tables["t"]


async def test_without_an_answer_nobody_knows() -> None:
    store = Slow()
    shared = Together(store, "t")
    first = asyncio.ensure_future(shared.commit([insert("first")]))
    await store.begun.wait()
    others = [asyncio.ensure_future(shared.commit([insert(f"r{n}")])) for n in range(3)]
    store.down = True
    store.go_on.set()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(answer) for answer in answers] == [LedgerUnavailableError] * 4


async def test_no_row_is_twice_in_a_transaction_and_none_is_too_large() -> None:
    store = Slow()
    large = [insert(f"l{n}", "x" * 30_000) for n in range(MOST_CHARACTERS // 30_000)]
    merge = Change(Act.UPSERT, row_of("p", "same", {"no": 1}))
    later = Change(Act.UPSERT, row_of("p", "same", {"no": 2}))
    await together(
        store, [merge], [later], *([each] for each in large), [insert("last", "x" * 20_000)]
    )
    assert store.sizes[:2] == [1, 1]
    assert store.tables["t"]["p", "same"]["no"] == 2
    assert len(store.sizes) == 4


async def test_who_gives_up_takes_nobody_with_it() -> None:
    store = Slow()
    shared = Together(store, "t")
    first = asyncio.ensure_future(shared.commit([insert("first")]))
    await store.begun.wait()
    leaves, stays = (asyncio.ensure_future(shared.commit([insert(row)])) for row in ("r1", "r2"))
    await asyncio.sleep(0)
    first.cancel()
    leaves.cancel()
    store.go_on.set()
    assert not isinstance(await stays, Refused)
    for gone in (first, leaves):
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert ("p", "r2") in store.tables["t"]
    assert ("p", "r1") not in store.tables["t"]


async def test_partitions_do_not_wait_for_each_other() -> None:
    store = Slow()
    shared = Together(store, "t")
    first = asyncio.ensure_future(shared.commit([insert("first")]))
    await store.begun.wait()
    assert not isinstance(await shared.commit([insert("r", partition="q")]), Refused)
    assert not first.done()
    store.go_on.set()
    await first
