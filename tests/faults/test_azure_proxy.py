"""Jobs on a real Azurite behind a proxy that loses answers, delays and throttles: none is lost.

`JOBS_BEHIND_PROXY=10000` runs that many; 60 are enough for every kind of trouble. They come in rounds, each
on tables of its own: Azurite looks through a whole table for each request.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.opening import open_tables
from lucius.adapters.ledgers.azure.side_tables import AzureLeases
from lucius.adapters.ledgers.azure.tables import AzureTables
from lucius.adapters.ledgers.azure.wakeups import SHARDS
from lucius.core.errors import LedgerError
from lucius.core.job import Job, JobState
from tests.azurite_server import shared_azurite
from tests.conformance.azure_ledgers import ALL, fresh_prefix, single, split
from tests.engine.apart import Apart, Process
from tests.engine.world import Timed
from tests.table_proxy import TableProxy

log = logging.getLogger("lucius.tests")
JOBS = int(os.environ.get("JOBS_BEHIND_PROXY", "60"))
A_ROUND = 500
AT_ONCE = 50
SHARE = 0.06
"""Of all requests."""
SHARED = "shared"
LATER = timedelta(days=1)
TROUBLE = ("landed, answer lost", "never arrived", "throttled", "delayed")
Opens = Callable[..., AzureLedger]


class RealTime:
    """The clock of the machine, where the world asks a loop."""

    @staticmethod
    def time() -> float:
        return asyncio.get_running_loop().time()

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)


class BehindProxy(Apart):
    """Every process has connections of its own."""

    connection: str
    prefix: str
    opens: Opens

    opened: list[AzureTables]

    def store(self) -> AzureTables:
        self.opened.append(open_tables(self.connection))
        return self.opened[-1]

    def ledger_at(self, later: timedelta = timedelta()) -> AzureLedger:
        return self.opens(self.store(), self.prefix, lambda: datetime.now(UTC) + later)

    def _process(self, name: str, *, takes: bool) -> Process:
        self.ledger = self.ledger_at()
        self.leases = AzureLeases(self.opened[-1], self.prefix + SHARED)
        return super()._process(name, takes=takes)


async def persistently(act: Callable[[], Any]) -> Any:
    """As a client does it: what fails is tried again."""
    while True:
        try:
            return await act()
        except LedgerError:
            await asyncio.sleep(0.1)


async def run_job(world: BehindProxy, process: Process, number: int) -> Job:
    job_id = await persistently(lambda: world.submit(process, number=number))
    ended: Job = await persistently(lambda: world.ended(process, job_id))
    return ended


async def run_all(world: BehindProxy, process: Process, jobs: range) -> set[JobState]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> JobState:
        async with turns:
            return (await run_job(world, process, number)).state

    return set(await asyncio.gather(*map(one, jobs)))


async def settled(world: BehindProxy) -> None:
    """A day later a new owner looks at every wake-up row that is left."""
    ledger = world.ledger_at(LATER)
    assert await ledger.due(datetime.now(UTC) + LATER, SHARDS, 1000) == []
    await ledger.close()


@asynccontextmanager
async def behind(proxy: TableProxy, opens: Opens) -> AsyncIterator[BehindProxy]:
    """A world on tables of its own; what it opened is closed at the end."""
    names = ("ocr", "embedding", "sis")
    world = BehindProxy(RealTime(), services=[Timed(name, 0) for name in names])  # type: ignore[arg-type]
    azurite = shared_azurite()
    world.connection = azurite.table_connection.replace(
        f":{azurite.table_port}/", f":{proxy.port}/"
    )
    world.prefix, world.opens, world.opened = fresh_prefix(), opens, []
    store = world.store()
    tables = [world.prefix + table for table in (*ALL, SHARED)]
    for table in tables:
        await store.ensure(table, "LUCIUS_LEDGER_TABLE")
    try:
        yield world
    finally:
        proxy.share = 0.0
        for table in tables:
            await store.remove(table)
        for each in world.opened:
            await each.close()


async def run_round(proxy: TableProxy, opens: Opens, jobs: range) -> None:
    async with behind(proxy, opens) as world:
        async with world.running():
            for number in range(2):
                await world.owner(f"owner-{number}")
            asking = await world.orchestrator("asks")
            proxy.share = SHARE
            assert await run_all(world, asking, jobs) == {JobState.SUCCEEDED}
            proxy.share = 0.0
        await settled(world)
        assert await world.ledger_at(LATER).verify() == []


@pytest.mark.timeout(300 + 5 * JOBS)
@pytest.mark.parametrize("opens", [single, split], ids=["ledger", "table"])
async def test_jobs_pass_while_answers_are_lost_and_verify_is_clean(opens: Opens) -> None:
    proxy = TableProxy(f"http://127.0.0.1:{shared_azurite().table_port}")
    async with proxy.running():
        for first in range(0, JOBS, A_ROUND):
            await run_round(proxy, opens, range(first, min(first + A_ROUND, JOBS)))
            log.info("%d jobs have passed: %s", first + A_ROUND, proxy.met)
    assert min(proxy.met[kind] for kind in TROUBLE) > 0
