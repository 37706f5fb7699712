"""What runs well is measured: throughput, latency, backlog, tenants; and it costs next to nothing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bench.transitions import make_outbox
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.errors import LedgerUnavailableError
from lucius.core.routing import lane_of
from lucius.engine.metrics import MAX_TENANTS, OTHERS, _by_tenant
from lucius.platform import Task
from lucius.ports.ledger import Inflight
from tests.observability.world import Watched, watched
from tests.virtual import VirtualLoop, run_virtually

LANE = str(lane_of("tenant_a"))


def after(seconds: float) -> Callable[[Task], Awaitable[None]]:
    async def act(task: Task) -> None:
        await asyncio.sleep(seconds)

    return act


async def backlog(world: Watched) -> list[float]:
    place = {"service": "ocr", "lane": LANE}
    stages = ("held", "released", "in_progress")
    return [await world.value("lucius_backlog", **place, stage=stage) for stage in stages]


@watched
async def test_the_backlog_is_shown_by_stage(world: Watched) -> None:
    puppet = await world.puppet()
    world.outbox.windows.close()
    await world.submit()
    assert await backlog(world) == [1, 0, 0]
    world.outbox.windows.reopen()
    world.outbox.releases.pump_all()
    directive = await puppet.take()
    assert await backlog(world) == [0, 1, 0]
    await puppet.ack(directive)
    assert await backlog(world) == [0, 0, 1]
    assert await world.value("lucius_inflight_jobs", tenant_id="tenant_a") == 1
    assert await world.value("lucius_window", service="ocr") >= 1
    await puppet.succeed(directive)
    assert await backlog(world) == [0, 0, 0]
    assert await world.value("lucius_inflight_jobs", tenant_id="tenant_a") == 0


def test_what_runs_is_counted_again_after_a_restart() -> None:
    async def main(loop: VirtualLoop) -> None:
        first = Watched(loop)
        await first.start()
        puppet = await first.puppet()
        await first.submit()
        directive = await puppet.take()
        await puppet.ack(directive)
        await first.stop()
        second = Watched(loop, ledger=first.ledger, bus=first.bus)
        await second.start()
        assert await backlog(second) == [0, 0, 1]
        await puppet.succeed(directive)
        assert await backlog(second) == [0, 0, 0]
        await second.stop()

    run_virtually(main)


@watched
async def test_during_an_outage_the_levels_stay_and_the_dependency_is_shown_down(
    world: Watched,
) -> None:
    world.outbox.windows.close()
    await world.submit()
    held = {"service": "ocr", "lane": LANE, "stage": "held"}
    assert await world.value("lucius_backlog", **held) == 1
    await world.metrics.refresh({"ledger": False, "bus": True})
    seen = world.registry.get_sample_value
    assert seen("lucius_backlog", held) == 1
    assert seen("lucius_dependency_up", {"dependency": "ledger"}) == 0
    assert seen("lucius_dependency_up", {"dependency": "bus"}) == 1


async def test_a_ledger_that_fails_in_the_middle_of_a_scrape_is_shown_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def down(self: MemoryLedger) -> Inflight:
        raise LedgerUnavailableError("away")

    monkeypatch.setattr(MemoryLedger, "inflight", down)
    metrics = make_outbox(MemoryLedger()).metrics
    await metrics.refresh({"ledger": True})
    assert metrics.dependency_up.cells == {("ledger",): 0.0}


def test_only_the_busiest_tenants_have_a_series_of_their_own() -> None:
    tenants = {f"t{n}": n for n in range(1, MAX_TENANTS + 101)}
    cells = _by_tenant(Inflight(sum(tenants.values()), tenants))
    assert len(cells) == MAX_TENANTS + 1
    assert (("t1",) in cells, cells[f"t{MAX_TENANTS + 100}",]) == (False, MAX_TENANTS + 100)
    assert sum(cells.values()) == sum(tenants.values())
    assert cells[OTHERS,] == sum(range(1, 101))
