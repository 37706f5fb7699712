"""An answer of Azure Tables that is lost: the request has landed, and is refused when it is sent again.

`LOST_ANSWER_SEEDS=40` loses answers by that many seeds. A seed gives the same requests each time.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from lucius.adapters.ledgers.azure.heads import StepsHead
from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.records import TableRecords
from lucius.adapters.ledgers.azure.repairing import PAUSE
from lucius.adapters.ledgers.azure.side_tables import AzureLeases
from lucius.adapters.ledgers.azure.store import Change, Etags, Refused
from lucius.adapters.ledgers.azure.tenants import Tenants
from lucius.adapters.ledgers.azure.wakeups import SHARDS, LaneTable
from lucius.core.errors import LedgerError, LedgerUnavailableError
from lucius.core.inputs import RetryRequested
from lucius.core.job import Job, JobState
from lucius.engine.ownership import LeasedLanes
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.records import MINE, OTHERS
from lucius.ports.ledger import Created, Limits, ReadyQueue
from tests.conformance.azure_ledgers import AzureTamper, SplitTamper, single, split
from tests.conformance.jobs import ack_of, at, make, release_of
from tests.engine.apart import Apart, Process
from tests.engine.world import Timed
from tests.faults.azure_operations import CANCEL, NOTIFIED, Site, applied, lived, request
from tests.faults.stopping_store import Clock, DeadError, Fate, StoppingStore
from tests.lossy_tables import LossyTables
from tests.memory_tables import ForgetfulTables, MemoryTables
from tests.simulation.wiring import seeded
from tests.virtual import VirtualLoop, run_virtually

PREFIX = "t"
Opens = Callable[..., AzureLedger]
BACKENDS = {"ledger": (single, AzureTamper), "table": (split, SplitTamper)}
on_both = pytest.mark.parametrize("backend", BACKENDS)
ONE = request("one").job.job_id
SEEDS = range(1, 1 + int(os.environ.get("LOST_ANSWER_SEEDS", "1")))


class Place(Site):
    """A site whose rows can be damaged behind the ledger's back."""

    def __init__(self, backend: str) -> None:
        opens, tamper = BACKENDS[backend]
        super().__init__(lambda store, clock: opens(store, PREFIX, clock))
        self.tamper = tamper(self.store, PREFIX)


async def kinds(ledger: AzureLedger) -> set[str]:
    return {drift.kind for drift in await ledger.verify()}


# -- what is asked of a lane, a tenant and others --------------------------------------------


class SlowTables(MemoryTables):
    """A request is answered when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def _request(self) -> None:
        await super()._request()
        await self.go_on.wait()


async def test_a_row_that_is_dropped_again_while_its_drop_is_under_way_ends_no_task() -> None:
    tables = SlowTables()
    lanes = LaneTable(tables, "lanes")
    lanes.drop(3, ["WAKE|1"])
    first = asyncio.ensure_future(lanes.settle([3]))
    await asyncio.sleep(0)
    lanes.drop(3, ["WAKE|1"])
    second = asyncio.ensure_future(lanes.settle([3]))
    await asyncio.sleep(0)
    assert lanes.hides(3, "WAKE|1")
    tables.go_on.set()
    await asyncio.gather(first, second)


@on_both
async def test_the_last_job_that_a_tenant_may_have_is_not_turned_away_because_of_itself(
    backend: str,
) -> None:
    tables, clock = ForgetfulTables(), Clock(at(0))
    ledger, made = BACKENDS[backend][0](tables, PREFIX, clock), make(1)
    outcome = await ledger.create(made.claim, made.job, made.events, Limits(tenant=1))
    assert outcome == Created()
    await ledger.close()
    assert (await ledger.inflight()).total == 1
    assert await ledger.verify() == []


async def test_one_job_that_two_end_at_once_keeps_no_other_from_its_tenants_rows() -> None:
    """A save whose lists are behind, and a look at its wake-up row: Azure takes a row once in a request."""
    tables = SlowTables()
    tables.go_on.set()
    tenants, one, two = Tenants(tables, "tenants"), make(1), make(2)
    heads = [StepsHead(made.claim.claim_hash, made.claim.body_hash, True, 1) for made in (one, two)]
    for made, head in zip((one, two), heads, strict=True):
        assert await tenants.admit(made.job, head, None) is None
    tables.go_on.clear()
    first = asyncio.ensure_future(tenants.end(two.job, heads[1]))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(tenants.end(one.job, heads[0])) for _ in range(2)]
    await asyncio.sleep(0)
    tables.go_on.set()
    await asyncio.gather(first, *others)
    assert (await tenants.live("tenant_a")).total() == 0


async def test_a_lane_whose_renewal_is_not_answered_is_still_the_holders_at_the_next() -> None:
    tables, time = MemoryTables(), 0.0
    for number in range(1, 6):
        store = StoppingStore(tables, number, Fate.UNKNOWN)
        lanes = LeasedLanes(AzureLeases(store, "shared"), "me", clock=lambda: time)
        for _ in range(3):
            try:
                held = await lanes.renew({})
            except LedgerUnavailableError:
                continue
        assert len(held) == 16, f"request {number}"
        await lanes.give_back()


def work() -> Directive:
    return parse_directive(
        {
            "jobId": "job_1",
            "stepId": "ocr",
            "tenant_id": "tenant_a",
            "step_type": "OCR",
            "attempt_no": 1,
            "lease_id": "lease_1",
            "workspace_ref": "mem://x/",
            "lane": 4,
            "lease_seconds": 60.0,
        }
    )


async def test_work_whose_heartbeat_was_not_answered_is_not_given_to_another() -> None:
    """Its row is renewed by the next heartbeat."""
    tables, clock = MemoryTables(), Clock(at(0))
    records = TableRecords(StoppingStore(tables, 1, Fate.UNKNOWN), PREFIX, clock)
    assert await records.begin(work(), "a") == MINE
    with pytest.raises(LedgerUnavailableError):
        await records.renew(work(), "a")
    clock.moment = at(50)
    await records.renew(work(), "a")
    clock.moment = at(100)
    assert await TableRecords(tables, PREFIX, clock).begin(work(), "b") == OTHERS


# -- ready rows that nobody needs ------------------------------------------------------------


async def queues(ledger: AzureLedger) -> list[ReadyQueue]:
    return list(await ledger.ready_queues(range(16)))


@on_both
async def test_a_ready_row_for_which_its_job_has_no_place_is_not_counted_and_goes(
    backend: str,
) -> None:
    place = Place(backend)
    owner = place.open()
    await lived(ack_of)(owner)
    await place.tamper.stray_ready(ONE)
    assert await queues(owner) == []
    await owner.close()
    assert await place.tamper._lane_rows("READY", ONE) == []


@on_both
async def test_a_ready_row_without_a_job_goes_when_it_is_met(backend: str) -> None:
    place = Place(backend)
    owner = place.open()
    await place.tamper.stray_ready("nobody")
    (queue,) = await queues(owner)
    (entry,) = await owner.ready(queue.queue_name, queue.lane, queue.tenant_id, 10)
    assert await owner.load(entry.job_id) is None
    assert await queues(owner) == []
    await owner.close()
    assert await kinds(place.open()) == set()


@on_both
async def test_a_ready_row_of_a_job_that_is_being_written_stays(backend: str) -> None:
    place = Place(backend)
    store = StoppingStore(place.store, f"{PREFIX}jobs", Fate.UNSENT)
    with pytest.raises(DeadError):
        made = request("one")
        await place.open(store).create(made.claim, made.job, made.events)
    owner = place.open()
    (queue,) = await queues(owner)
    (entry,) = await owner.ready(queue.queue_name, queue.lane, queue.tenant_id, 10)
    assert await owner.load(entry.job_id) is None
    assert len(await queues(owner)) == 1


# -- jobs that nothing brings up -------------------------------------------------------------


async def lost(place: Place, *, released: bool = False) -> None:
    """A job whose rows in the lane are gone, as after an answer that an older version lost."""
    await place.by_another(lived(released=released))
    await place.tamper.lose_due(ONE)
    await place.tamper.lose_ready(ONE)
    assert "missing_due_at" in await kinds(place.open())


@on_both
@pytest.mark.parametrize("released", [False, True], ids=["held", "released"])
async def test_the_process_repairs_a_job_that_nothing_brings_up(
    backend: str, released: bool
) -> None:
    place = Place(backend)
    await lost(place, released=released)
    owner = place.open()
    for _ in range(3):
        place.clock.moment += PAUSE
        await owner.sweep(place.clock())
    assert await kinds(place.open()) == set()
    assert [due.job_id for due in await owner.due(at(10**8), range(16), 10)] == [ONE]


@on_both
async def test_a_job_that_has_what_it_needs_is_not_touched_by_a_repair(backend: str) -> None:
    place = Place(backend)
    await place.by_another(lived())
    before = dict(place.store.written)
    assert not await place.open().repair(ONE)
    assert dict(place.store.written) == before


@on_both
async def test_whoever_reads_an_ended_job_whose_effect_is_overdue_repairs_it(backend: str) -> None:
    place = Place(backend)
    await place.by_another(lived(CANCEL, released=False, callback_urls=NOTIFIED))
    await place.tamper.lose_due(ONE)
    place.wait(hours=1)
    assert "missing_due_at" in await kinds(place.open())
    await place.by_another(lambda ledger: ledger.load(ONE))
    assert await kinds(place.open()) == set()


# -- with the engine -------------------------------------------------------------------------


class EachItsOwn(Apart):
    """Every process opens a ledger of its own on the same tables."""

    tables: MemoryTables
    opens: Opens

    def _process(self, name: str, *, takes: bool) -> Process:
        self.ledger = self.opens(self.tables, PREFIX, self.loop.now)
        self.leases = AzureLeases(self.tables, "shared")
        return super()._process(name, takes=takes)


def world_of(loop: VirtualLoop, tables: MemoryTables, backend: str, seconds: float) -> EachItsOwn:
    services = [Timed(name, seconds) for name in ("ocr", "embedding", "sis")]
    world = EachItsOwn(loop, services=[*services])
    world.tables, world.opens = tables, BACKENDS[backend][0]
    return world


async def persistently(act: Callable[[], Coroutine[Any, Any, str]]) -> str:
    while True:
        try:
            return await act()
        except LedgerError:
            await asyncio.sleep(1)


@on_both
@pytest.mark.parametrize("share", [0.03, 0.3], ids=["some answers", "every third answer"])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_answers_are_lost_every_job_ends_and_verify_is_clean(
    backend: str, share: float, seed: int
) -> None:
    async def main(loop: VirtualLoop) -> None:
        tables = LossyTables(seed)
        world = world_of(loop, tables, backend, 0.2)
        async with world.running():
            owners = [await world.owner(f"owner-{n}") for n in range(2)]
            asking = await world.orchestrator("asks")
            tables.share = share
            submits = (
                persistently(lambda n=n: world.submit(asking, number=n))  # type: ignore[misc]
                for n in range(100)
            )
            ids = set(await asyncio.gather(*submits))
            ended = [await persistent_end(world, asking, job_id) for job_id in sorted(ids)]
            assert {job.state for job in ended} == {JobState.SUCCEEDED}
            assert tables.met["landed, then refused"] > 3
            tables.share = 0.0
            await asyncio.sleep(600)
            for owner in owners:
                assert await owner.parts.engine.backlog() == []
        loop.stand_still(86_400)
        await next_owner(world)  # the last wake-up rows have come up
        assert await world.opens(tables, PREFIX, loop.now).verify() == []

    failures: list[BaseException] = []

    async def watched(loop: VirtualLoop) -> None:
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        await main(loop)

    with seeded(seed):
        run_virtually(watched)
    assert {type(error) for error in failures} <= {LedgerUnavailableError}


async def next_owner(world: EachItsOwn) -> None:
    ledger = world.opens(world.tables, PREFIX, world.loop.now)
    assert await ledger.due(world.loop.now(), SHARDS, 1000) == []
    await ledger.close()


async def persistent_end(world: EachItsOwn, process: Process, job_id: str) -> Job:
    while True:
        try:
            return await world.ended(process, job_id)
        except LedgerError:
            await asyncio.sleep(1)


@on_both
def test_a_retry_frees_a_job_whose_rows_are_lost(backend: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        tables = MemoryTables()
        tamper = BACKENDS[backend][1](tables, PREFIX)
        async with world_of(loop, tables, backend, 0).running() as world:
            asking = await world.orchestrator("asks")
            job_id = await world.submit(asking)
            await tamper.lose_due(job_id)
            await tamper.lose_ready(job_id)
            await world.owner("owner")
            await asyncio.sleep(60)
            job = await asking.parts.engine.job(job_id)
            assert job is not None
            assert not job.terminal, "nothing brings it up"
            await asking.parts.engine.apply(job_id, RetryRequested())
            ended = await asking.parts.engine.ended(job_id, 60)
            assert ended is not None
            assert ended.state is JobState.SUCCEEDED

    run_virtually(main)


# -- what a lost answer costs ----------------------------------------------------------------

COSTS = {"jobs": 2, "lanes": 1, "tenants": 4}
"""Requests more, by the table whose answer is lost. A job is sent again and read. The rows of a lane are sent
again. The rows of a tenant are sent again, twice, with the count and the claim read in between."""


class LosesOne(MemoryTables):
    loses = ""
    """The table whose next write is sent twice."""

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        if table != self.loses:
            return await super().commit(table, changes, once=once)
        self.loses = ""
        await super().commit(table, changes)
        return await super().commit(table, changes)


async def requests_of(backend: str, loses: str) -> tuple[int, int]:
    """Of a creation, and of a save that needs a row in its lane, each with such an answer lost."""
    tables, counts = LosesOne(), list[int]()
    ledger, made = BACKENDS[backend][0](tables, PREFIX, Clock(at(5))), request("one")
    other = request("other", "other")
    await ledger.create(other.claim, other.job, other.events)  # the tenant's first
    for act in (
        lambda: ledger.create(made.claim, made.job, made.events),
        lambda: applied(ledger, "one", release_of),
    ):
        tables.loses, before = loses, tables.requests
        assert await act() in (Created(), True)
        counts.append(tables.requests - before)
    return counts[0], counts[1]


@on_both
@pytest.mark.parametrize("table", COSTS)
async def test_a_lost_answer_costs_no_more_requests_than_we_say(backend: str, table: str) -> None:
    whole, lossy = await requests_of(backend, ""), await requests_of(backend, PREFIX + table)
    assert lossy[0] - whole[0] == COSTS[table]
    assert lossy[1] - whole[1] == (COSTS[table] if table != "tenants" else 0)
