"""A redrive plan keeps to its pace and to the limits of tenants, and comes to an end whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from lucius.core.errors import RequestError
from lucius.operations.redrives import MOST_LIVE, RedrivePlans
from lucius.ports.engine import Submitted
from lucius.ports.ledger import JobQuery, Limits
from lucius.ports.redrives import PlanState, RedrivePlan, RedriveRules
from tests.insight.test_redrives import QUERY, Dying, ProcessDiedHere, failed_jobs, through
from tests.insight.ward import Ward
from tests.virtual import VirtualLoop, run_virtually

T = TypeVar("T")


@asynccontextmanager
async def planning(ward: Ward, plans: RedrivePlans | None = None) -> AsyncIterator[RedrivePlans]:
    plans = plans or ward.insight.redrives
    running = asyncio.create_task(plans.run())
    try:
        yield plans
    finally:
        running.cancel()


def in_ward(main: Callable[[Ward], Awaitable[T]], **ward: Any) -> T:
    async def run(loop: VirtualLoop) -> T:
        made = Ward(loop, **ward)
        async with made.running("ocr"):
            return await main(made)

    return run_virtually(run)


def run_at(rate: float, many: int) -> tuple[RedrivePlan, float]:
    async def main(ward: Ward) -> tuple[RedrivePlan, float]:
        await failed_jobs(ward, many)
        async with planning(ward) as plans:
            plan = await plans.start(QUERY, RedriveRules(canary=0, rate=rate), "anna", None)
            began = ward.loop.time()
            return await through(ward, plan.plan_id, plans), ward.loop.time() - began

    return in_ward(main)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 1.5, 7.0])
def test_a_pace_that_is_no_whole_number_a_second_is_kept(rate: float) -> None:
    """Less than one a second once ended the plan at once, with nothing redriven."""
    many = 20
    plan, seconds = run_at(rate, many)
    assert (plan.state, plan.redriven, plan.succeeded) == (PlanState.DONE, many, many)
    assert seconds >= (many - 1 - max(1, rate)) / rate, "no faster than it may"
    assert seconds <= many / rate * 1.3 + 20, "and not much slower"


def test_a_plan_waits_for_the_limit_of_its_tenant_and_goes_on() -> None:
    async def main(ward: Ward) -> None:
        await failed_jobs(ward, 12)
        ward.services["ocr"].seconds = 30
        ward.limits = Limits(tenant=3)
        async with planning(ward) as plans:
            plan = await plans.start(QUERY, RedriveRules(canary=0, rate=50.0), "anna", None)
            await asyncio.sleep(5)
            (waiting,) = await plans.plans()
            assert (waiting.redriven, waiting.refused) == (3, 0), "no more than the tenant may have"
            assert waiting.said.startswith("waits: "), waiting.said
            assert (await ward.ledger.inflight()).tenants == {"tenant_a": 3}
            plan = await through(ward, plan.plan_id, plans)
        assert (plan.state, plan.redriven, plan.succeeded) == (PlanState.DONE, 12, 12)
        assert (plan.failed, plan.refused, plan.said) == (0, 0, "")

    in_ward(main)


def test_a_plan_that_waits_ends_when_others_have_taken_its_jobs() -> None:
    async def main(ward: Ward) -> None:
        await failed_jobs(ward, 4)
        ward.limits = Limits(tenant=0)
        async with planning(ward) as plans:
            plan = await plans.start(QUERY, RedriveRules(canary=2, rate=50.0), "anna", None)
            await asyncio.sleep(5)
            ward.limits = Limits()
            for record in list(ward.ledger.jobs.values()):
                if record.job.in_dlq:
                    await ward.engine.redrive(record.job.job_id)
            plan = await through(ward, plan.plan_id, plans)
        assert (plan.state, plan.said) == (PlanState.DONE, "")

    in_ward(main)


class Refusing:
    """An engine that redrives nothing, as when the protocol of the jobs is gone."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def redrive(self, job_id: str, **more: Any) -> Submitted:
        raise RequestError("INVALID_PAYLOAD", "the payload does not suit the protocol", status=422)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.mark.parametrize("canary", [0, 3])
def test_a_plan_whose_jobs_are_all_refused_ends_and_says_why(canary: int) -> None:
    async def main(ward: Ward) -> RedrivePlan:
        await failed_jobs(ward, 6)
        made = RedrivePlans(
            ward.ledger.shared_records(), Refusing(ward.engine), runs=lambda: True, now=ward.now
        )
        async with planning(ward, made) as plans:
            plan = await plans.start(QUERY, RedriveRules(canary=canary, rate=5.0), "anna", None)
            return await through(ward, plan.plan_id, plans)

    plan = in_ward(main)
    assert (plan.redriven, plan.refused) == (0, canary or 6), "each is tried once"
    assert plan.state is (PlanState.STOPPED if canary else PlanState.DONE)
    assert plan.said == "refused: INVALID_PAYLOAD: the payload does not suit the protocol"


def test_what_was_announced_is_not_redriven_any_more_when_someone_has_stopped_the_plan() -> None:
    """Its process died after it had said which jobs come next; then it was stopped."""

    async def main(ward: Ward) -> None:
        await failed_jobs(ward, 20)
        records = ward.ledger.shared_records()
        dying = Dying(ward.engine, after=4)
        first = RedrivePlans(records, dying, runs=lambda: True, now=ward.now)
        plan = await first.start(QUERY, RedriveRules(canary=0, rate=20.0), "anna", None)
        with pytest.raises(ProcessDiedHere):
            await first.turn()
        await first.stop(plan.plan_id, "bert")
        await asyncio.sleep(5)
        second = RedrivePlans(records, ward.engine, runs=lambda: True, now=ward.now)
        async with planning(ward, second):
            plan = await through(ward, plan.plan_id, second)
        assert (plan.state, plan.succeeded) == (PlanState.STOPPED, 4), "the others are as they were"
        assert await ward.ledger.count(QUERY) == 16

    in_ward(main)


def test_the_same_plan_is_not_started_twice_and_there_are_not_too_many() -> None:
    async def main(ward: Ward) -> None:
        await failed_jobs(ward, 3)
        plans, rules = ward.insight.redrives, RedriveRules(canary=0, rate=0.1)
        first = await plans.start(QUERY, rules, "anna", None)
        with pytest.raises(RequestError, match=first.plan_id) as refused:
            await plans.start(QUERY, RedriveRules(), "bert", None)
        assert refused.value.code == "PLAN_UNDER_WAY"
        for number in range(MOST_LIVE - 1):
            other = JobQuery(dlq=True, codes=frozenset({"BROKEN", f"OTHER_{number}"}))
            await plans.start(other, rules, "anna", None)
        with pytest.raises(RequestError) as refused:
            await plans.start(JobQuery(dlq=True, request_type="OCR"), rules, "anna", None)
        assert refused.value.code == "TOO_MANY_PLANS"
        await plans.stop(first.plan_id, "anna")
        assert (await plans.start(QUERY, rules, "anna", None)).matched == 3

    in_ward(main)
