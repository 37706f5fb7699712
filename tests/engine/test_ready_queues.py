"""Queues of entries that wait for room: what the ledger alone has is read, and nothing is missed."""

import asyncio
from collections.abc import Collection, Sequence
from typing import cast

from lucius.core.plan import service_of
from lucius.engine.releases import ReadyQueues, Waiting
from lucius.ports.ledger import Ledger, ReadyEntry, ReadyQueue

KEY, TENANT = ("ocr", 3), "acme"


class SlowReads:
    """A ledger in which one queue has entries. An answer is as old as its request."""

    def __init__(self) -> None:
        self.entries: tuple[ReadyEntry, ...] = ()
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def ready_queues(self, lanes: Collection[int]) -> Sequence[ReadyQueue]:
        return [ReadyQueue(*KEY, TENANT, 1)]

    async def ready(
        self, queue_name: str, lane: int, tenant_id: str, limit: int
    ) -> Sequence[ReadyEntry]:
        found = self.entries
        self.asked.set()
        await self.answer.wait()
        return found


async def test_an_entry_that_is_added_while_the_ledger_is_read_is_read_next() -> None:
    ledger = SlowReads()
    queues = ReadyQueues(cast(Ledger, ledger), service_of)
    await queues.recover({KEY[1]})
    taking = asyncio.create_task(queues.take(KEY, TENANT))
    await ledger.asked.wait()
    ledger.entries = (ReadyEntry(1, "job_1", "ocr", *KEY, TENANT),)
    queues.add(KEY, TENANT, Waiting("job_1", "ocr"))
    ledger.answer.set()
    assert await taking is None, "the answer was older than the entry"
    assert await queues.take(KEY, TENANT) == Waiting("job_1", "ocr")
