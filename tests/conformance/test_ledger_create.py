"""Creating jobs: one claim has one job, limits hold, and live jobs are counted to the end."""

import asyncio
from dataclasses import replace

from lucius.core.errors import LedgerError
from lucius.core.inputs import CancelRequested
from lucius.core.plan import Mode
from lucius.ports.ledger import (
    Created,
    Duplicate,
    Inflight,
    KeyReused,
    Ledger,
    LimitReached,
    Limits,
)
from tests.conformance.jobs import Made, ack_of, claim_of, failure_of, life_of, make
from tests.conformance.ledger_registry import ADAPTERS, EXACT_LIMITS, SHARED, Harness
from tests.conformance.on_every import on_every


@on_every(ADAPTERS)
async def test_a_created_job_is_loaded_whole(on: Harness) -> None:
    made = make(1, callback_urls=("https://client.example/done",), extra={"priority": 3})
    await on.create(made)
    loaded = await on.ledger.load(made.job.job_id)
    assert loaded == made.job
    assert loaded is not None
    assert loaded.plan == made.job.plan
    assert await on.ledger.load("nobody") is None


@on_every(ADAPTERS)
async def test_of_a_hundred_duplicates_at_once_one_is_created(on: Harness) -> None:
    made = [replace(make(n), claim=claim_of("same")) for n in range(100)]
    outcomes = await asyncio.gather(
        *(on.ledger.create(one.claim, one.job, one.events) for one in made)
    )
    winners = [m.job.job_id for m, o in zip(made, outcomes, strict=True) if o == Created()]
    assert len(winners) == 1
    assert outcomes.count(Duplicate(winners[0])) == 99
    assert (await on.ledger.inflight()).total == 1
    assert await on.ledger.claimed(made[0].claim) == Duplicate(winners[0])


@on_every(ADAPTERS)
async def test_a_claim_is_looked_up_without_being_taken(on: Harness) -> None:
    made = make(1)
    assert await on.ledger.claimed(made.claim) is None
    await on.create(made)
    assert await on.ledger.claimed(made.claim) == Duplicate(made.job.job_id)


@on_every(ADAPTERS)
async def test_the_same_claim_of_another_tenant_is_another_claim(on: Harness) -> None:
    await on.create(make(1, "tenant_a"))
    other = replace(make(2, "tenant_b"), claim=claim_of(1, "tenant_b"))
    await on.create(other)


@on_every(ADAPTERS)
async def test_a_key_with_another_body_is_refused_and_nothing_is_written(on: Harness) -> None:
    first = make(1, keyed=True)
    await on.create(first)
    reused = replace(first.claim, body_hash=claim_of(2).body_hash)
    second = make(2)
    outcome = await on.ledger.create(reused, second.job, second.events)
    assert outcome == await on.ledger.claimed(reused) == KeyReused(first.job.job_id)
    assert await on.ledger.load(second.job.job_id) is None


@on_every(ADAPTERS)
async def test_a_claim_from_the_body_is_replaced_once_its_job_failed(on: Harness) -> None:
    failed = await on.create(make(1, released=True))
    failed = await on.apply(failed, ack_of(failed))
    await on.apply(failed, failure_of(failed))
    assert await on.ledger.claimed(claim_of(1)) is None
    again = replace(make("again"), claim=claim_of(1))
    await on.create(again)
    assert await on.ledger.claimed(claim_of(1)) == Duplicate(again.job.job_id)
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_a_claim_from_the_body_is_replaced_once_its_job_was_cancelled(on: Harness) -> None:
    await on.apply(await on.create(make(1)), CancelRequested())
    again = replace(make("again"), claim=claim_of(1))
    await on.create(again)
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_a_claim_from_the_body_holds_against_a_job_that_succeeded(on: Harness) -> None:
    made = make(1, released=True)
    await on.create(made)
    for decision in life_of(made.job):
        await on.save(decision)
    assert await on.ledger.claimed(made.claim) == Duplicate(made.job.job_id)


@on_every(ADAPTERS)
async def test_a_claim_from_a_key_holds_for_good(on: Harness) -> None:
    made = make(1, keyed=True)
    await on.apply(await on.create(made), CancelRequested())
    again = make("again")
    outcome = await on.ledger.create(made.claim, again.job, again.events)
    assert outcome == Duplicate(made.job.job_id)


@on_every(ADAPTERS)
async def test_of_many_that_replace_a_claim_at_once_one_does(on: Harness) -> None:
    await on.apply(await on.create(make("old")), CancelRequested())
    made = [replace(make(n), claim=claim_of("old")) for n in range(20)]
    outcomes = await asyncio.gather(
        *(on.ledger.create(one.claim, one.job, one.events) for one in made)
    )
    assert outcomes.count(Created()) == 1
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_a_job_id_that_is_taken_is_refused_alone(on: Harness) -> None:
    taken = await on.create(make("taken"))
    made = [make(n) for n in range(3)]
    made[1] = replace(made[1], job=taken)
    outcomes = await asyncio.gather(
        *(on.ledger.create(m.claim, m.job, m.events) for m in made), return_exceptions=True
    )
    assert outcomes[0] == outcomes[2] == Created()
    assert isinstance(outcomes[1], LedgerError)
    assert await on.ledger.claimed(made[1].claim) is None
    assert (await on.ledger.inflight()).total == 3
    assert await on.ledger.verify() == []


# -- limits ----------------------------------------------------------------------------------


@on_every(ADAPTERS)
async def test_each_limit_stops_the_next_job_and_leaves_no_claim(on: Harness) -> None:
    await on.create(make(1))
    for limits, scope in (
        (Limits(tenant=1), "tenant"),
        (Limits(total=1), "total"),
        (Limits(lane=1), "lane"),
    ):
        next_ = make(2)
        outcome = await on.ledger.create(next_.claim, next_.job, next_.events, limits)
        assert outcome == LimitReached(scope)
        assert await on.ledger.claimed(next_.claim) is None
        assert await on.ledger.load(next_.job.job_id) is None


@on_every(ADAPTERS)
async def test_limits_count_their_own_scope_only(on: Harness) -> None:
    await on.create(make(1, "tenant_a"))
    other = make(2, "tenant_b")
    limits = Limits(tenant=1, total=2, lane=1)
    assert other.job.plan.routing.lane != make(1, "tenant_a").job.plan.routing.lane
    assert await on.ledger.create(other.claim, other.job, other.events, limits) == Created()


@on_every(ADAPTERS)
async def test_the_lane_limit_counts_each_mode_by_itself(on: Harness) -> None:
    await on.create(make(1))
    lane = make(1).job.plan.routing.lane
    burst = next(
        made
        for made in (make(n, mode=Mode.BURST) for n in range(2, 1000))
        if made.job.plan.routing.lane == lane
    )
    none = Limits(lane=1, burst_lane=0)
    outcome = await on.ledger.create(burst.claim, burst.job, burst.events, none)
    assert outcome == LimitReached("lane"), "BURST has a limit of its own"
    limits = Limits(lane=1)
    assert await on.ledger.create(burst.claim, burst.job, burst.events, limits) == Created()


@on_every(ADAPTERS)
async def test_a_duplicate_is_recognised_even_when_saturated(on: Harness) -> None:
    made = make(1)
    await on.create(made)
    outcome = await on.ledger.create(made.claim, make(2).job, (), Limits(total=0))
    assert outcome == Duplicate(made.job.job_id)


@on_every(ADAPTERS)
async def test_of_many_at_once_no_more_than_the_limit_are_created(on: Harness) -> None:
    made = [make(n) for n in range(50)]
    outcomes = await asyncio.gather(
        *(on.ledger.create(m.claim, m.job, m.events, Limits(tenant=7)) for m in made)
    )
    assert outcomes.count(Created()) == 7
    assert outcomes.count(LimitReached("tenant")) == 43
    assert (await on.ledger.inflight()).total == 7


async def created(ledger: Ledger, made: Made, limits: Limits) -> bool:
    return await ledger.create(made.claim, made.job, made.events, limits) == Created()


@on_every(ADAPTERS, EXACT_LIMITS)
async def test_where_limits_are_exact_many_at_once_do_not_exceed_them(on: Harness) -> None:
    made = [make(n, f"tenant_{n % 5}") for n in range(50)]
    here = [each for each in made if each.job.plan.routing.lane == made[0].job.plan.routing.lane]
    lane = await asyncio.gather(*(created(on.ledger, m, Limits(lane=3)) for m in here))
    assert sum(lane) == 3
    rest = [each for each in made if each not in here]
    total = await asyncio.gather(*(created(on.ledger, m, Limits(total=7)) for m in rest))
    assert sum(total) == 4
    assert (await on.ledger.inflight()).total == 7


@on_every(ADAPTERS, SHARED)
async def test_where_they_are_not_others_exceed_them_until_they_read_the_counts(
    on: Harness,
) -> None:
    """Each process admits up to the limit by what it has read and what it has admitted since."""
    assert on.another is not None
    one, two, limits = on.ledger, on.another(), Limits(total=4, lane=4)
    assert await created(two, make(100), limits), "it has read the counts now"
    mine = [await created(one, make(n), limits) for n in range(6)]
    assert mine == [True] * 3 + [False] * 3
    theirs = sum([await created(two, make(100 + n), limits) for n in range(1, 6)])
    assert theirs <= 3
    assert (await on.ledger.inflight()).total == 4 + theirs
    late = on.another()
    assert not await created(late, make(200), limits), "whoever reads the counts admits no more"
    assert await on.ledger.verify() == []


# -- inflight --------------------------------------------------------------------------------


@on_every(ADAPTERS)
async def test_inflight_is_freed_exactly_when_the_job_ends(on: Harness) -> None:
    made = make(1, released=True, callback_urls=("https://client.example/done",))
    await on.create(made)
    lane = made.job.plan.routing.lane
    one = Inflight(1, {"tenant_a": 1}, {(lane, "DEFAULT"): 1})
    for decision in life_of(made.job):
        assert await on.ledger.inflight() == one
        job = await on.save(decision)
    assert await on.ledger.inflight() == Inflight()
    assert job.owed
    await on.save(replace(decision, job=replace(job, version=job.version + 1), events=()))
    assert await on.ledger.inflight() == Inflight()
