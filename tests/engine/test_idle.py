"""A deployment that has nothing to do asks little of its ledger, and what comes up is not late for it."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import pytest

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.side_tables import AzureLeases
from lucius.adapters.ledgers.azure.store import Store
from lucius.core.job import JobState
from lucius.engine import ticks
from lucius.engine.metrics import REREAD
from lucius.engine.notices import Nudges
from tests.conformance.azure_ledgers import single, split
from tests.engine.apart import Apart, Process
from tests.engine.world import Timed
from tests.memory_tables import MemoryTables
from tests.virtual import VirtualLoop, run_virtually

MINUTE = 60
OWNERS = 2
A_LOOK = 16
"""Requests: one for each lane, whoever owns it."""
RENEWALS = 3 * 20 * OWNERS
"""A minute: each owner reads the rows, writes its own and, in one transaction, those of its lanes."""
HELD = MINUTE / REREAD.total_seconds() * A_LOOK


async def settled(world: Apart) -> list[Process]:
    owners = [await world.owner(f"owner-{n}") for n in range(OWNERS)]
    await asyncio.sleep(2 * MINUTE)
    return owners


@pytest.mark.parametrize("opens", [single, split], ids=["ledger", "table"])
def test_an_idle_minute_costs_the_ledger_few_requests(
    opens: Callable[[Store, str, Callable[[], datetime]], AzureLedger],
) -> None:
    async def main(loop: VirtualLoop) -> None:
        tables = MemoryTables()
        ledger = opens(tables, "", loop.now)
        leases = AzureLeases(tables, "shared")
        async with Apart(loop, ledger=ledger, leases=leases).running() as world:
            await settled(world)
            before = tables.requests
            await asyncio.sleep(MINUTE)
            looks = MINUTE / ticks.QUIET.total_seconds()
            assert tables.requests - before <= RENEWALS + HELD + (looks + 2) * A_LOOK

    run_virtually(main)


def test_what_comes_after_a_quiet_time_is_found_at_once_by_its_nudge() -> None:
    async def main(loop: VirtualLoop) -> None:
        services = [Timed(name, 0) for name in ("ocr", "embedding", "sis")]
        async with Apart(loop, services=[*services]).running() as world:
            await settled(world)
            asking = await world.orchestrator("asks")
            began = loop.time()
            job = await world.ended(asking, await world.submit(asking))
            assert job.state is JobState.SUCCEEDED
            assert loop.time() - began < 1

    run_virtually(main)


def test_a_lost_nudge_after_a_quiet_time_costs_no_more_than_the_longest_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Nudges, "put", lambda self, job: None)

    async def main(loop: VirtualLoop) -> None:
        services = [Timed(name, 0) for name in ("ocr", "embedding", "sis")]
        async with Apart(loop, services=[*services]).running() as world:
            await settled(world)
            asking = await world.orchestrator("asks")
            began = loop.time()
            await world.ended(asking, await world.submit(asking))
            assert loop.time() - began <= ticks.QUIET.total_seconds() + 1

    run_virtually(main)


def test_a_retry_in_a_quiet_time_is_on_time() -> None:
    """A lease that runs out is known: no look need find it."""

    async def main(loop: VirtualLoop) -> None:
        async with Apart(loop).running() as world:
            (owner, _) = await settled(world)
            asking = await world.orchestrator("asks")
            job_id = await world.submit(asking)
            await asyncio.sleep(1)
            job = await asking.parts.engine.job(job_id)
            assert job is not None
            assert job.due_at is not None
            due = (job.due_at - loop.now()).total_seconds()
            assert due > ticks.QUIET.total_seconds(), "looks are rare by then"
            await asyncio.sleep(due + 0.1)
            later = await owner.parts.engine.job(job_id)
            assert later is not None
            assert later.version > job.version

    run_virtually(main)
