"""A claim whose job was never written is removed with its count after ten minutes, and not before."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.store import Store
from lucius.core.errors import LedgerError
from lucius.ports.ledger import Created, Inflight, Limits, Sweeps, Unfinished
from tests.conformance.azure_ledgers import single, split
from tests.conformance.jobs import START, make
from tests.faults.stopping_store import Clock, DeadError, Fate, StoppingStore
from tests.memory_tables import MemoryTables

Opens = Callable[[Store, str, Callable[[], datetime]], AzureLedger]
on_both = pytest.mark.parametrize("opens", [single, split], ids=["ledger", "table"])


class Site:
    """A ledger, and a writer that stops when it has claimed and before it has written the job."""

    def __init__(self, opens: Opens) -> None:
        self.clock = Clock(START)
        self.tables = MemoryTables()
        self._opens = opens
        self.made = make(1)

    def open(self, store: Store | None = None) -> AzureLedger:
        return self._opens(store or self.tables, "t", self.clock)

    async def claimed(self, fate: Fate) -> tuple[StoppingStore, "asyncio.Task[object]"]:
        """At the first request at which nothing but the claim is there."""
        for number in range(20):
            store = StoppingStore(self.tables, number, fate)
            ledger = self.open(store)
            task = asyncio.create_task(self._creates(ledger))
            await store.reached.wait()
            if isinstance(await self.open().claimed(self.made.claim), Unfinished):
                return store, task
            store.wake_up.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.tables.tables.clear()
        raise AssertionError("the claim never stands alone")

    async def _creates(self, ledger: AzureLedger) -> object:
        try:
            return await ledger.create(self.made.claim, self.made.job, self.made.events)
        except (DeadError, LedgerError) as error:
            return error

    async def after(self, minutes: float) -> int:
        """What a sweep of another process finds, so long after the start."""
        self.clock.moment = START + timedelta(minutes=minutes)
        ledger = self.open()
        assert isinstance(ledger, Sweeps)
        found = await ledger.sweep(self.clock())
        await ledger.close()
        return found


@on_both
async def test_a_claim_without_a_job_stands_for_ten_minutes_and_then_frees_its_place(
    opens: Opens,
) -> None:
    site = Site(opens)
    await site.claimed(Fate.UNSENT)
    assert await site.after(9.9) == 0
    assert isinstance(await site.open().claimed(site.made.claim), Unfinished)
    assert (await site.open().inflight()).total == 1, "it counts meanwhile"
    assert await site.after(10) == 1
    assert await site.open().claimed(site.made.claim) is None
    assert await site.open().inflight() == Inflight()
    other, limits = make(2), Limits(tenant=1)
    outcome = await site.open().create(other.claim, other.job, other.events, limits)
    assert outcome == Created()


@on_both
async def test_whoever_repeats_the_request_completes_it_and_a_sweep_finds_nothing(
    opens: Opens,
) -> None:
    site = Site(opens)
    await site.claimed(Fate.UNSENT)
    made = site.made
    assert await site.open().create(made.claim, made.job, made.events) == Created()
    assert await site.after(11) == 0
    assert await site.open().load(made.job.job_id) == made.job
    assert await site.open().verify() == []


@on_both
async def test_a_writer_that_wakes_up_after_the_sweep_creates_nothing(opens: Opens) -> None:
    site = Site(opens)
    store, task = await site.claimed(Fate.LATE)
    assert await site.after(10) == 1
    store.wake_up.set()
    assert await task != Created()
    assert await site.open().load(site.made.job.job_id) is None
    assert await site.open().claimed(site.made.claim) is None
    assert await site.open().inflight() == Inflight()
