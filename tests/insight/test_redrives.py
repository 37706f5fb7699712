"""A redrive plan: a few first, then the rest at its pace; it stops by itself, and survives its process."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.core.decide import decide, submit
from lucius.core.inputs import EntryReleased, ResultReceived, ResultStatus
from lucius.core.job import Fault
from lucius.operations.redrives import MOST_UNDER_WAY, RedrivePlans
from lucius.ports.engine import Submitted
from lucius.ports.ledger import Claim, JobQuery
from lucius.ports.redrives import PlanState, RedrivePlan, RedriveRules
from tests.api.live import live
from tests.insight.ward import FATAL, Ward
from tests.virtual import VirtualLoop, run_virtually

BROKEN = Fault("BROKEN", "the index is down")
QUERY = JobQuery(dlq=True, codes=frozenset({"BROKEN"}))
MANY = 1_500


async def failed_jobs(ward: Ward, many: int) -> None:
    """As if a service had failed them: made by the real core, without the way there."""
    pattern = (await ward.job(await ward.submit())).plan
    await ward.engine.apply(pattern.job_id, _cancel())
    for number in range(many):
        plan = _renamed(pattern, f"job_failed_{number:06}")
        made = submit(plan, ward.now())
        released = decide(made.job, EntryReleased("ocr", f"l{number}"), ward.now())
        result = ResultReceived("ocr", 1, f"l{number}", ResultStatus.FAILED_FINAL, None, BROKEN)
        ended = decide(released.job, result, ward.now())
        claim = Claim(plan.tenant_id, plan.job_id, plan.job_id, keyed=True)
        events = made.events + released.events + ended.events
        await ward.ledger.create(claim, ended.job, events)


def _cancel() -> Any:
    from lucius.core.inputs import CancelRequested

    return CancelRequested(immediate=True)


def _renamed(plan: Any, job_id: str) -> Any:
    from dataclasses import replace

    return replace(plan, job_id=job_id)


async def through(ward: Ward, plan_id: str, plans: RedrivePlans) -> RedrivePlan:
    """Until the plan has ended and all that it redrove has. One that stands still ends the test."""
    async with asyncio.timeout(86_400):
        while True:
            plan = next(each for each in await plans.plans() if each.plan_id == plan_id)
            if plan.state in (PlanState.DONE, PlanState.STOPPED) and not plan.under_way:
                return plan
            await asyncio.sleep(5)


def run_plan(many: int, rules: RedriveRules, *, broken: bool) -> tuple[RedrivePlan, float, int]:
    """The plan when it is through, how long it took, and how many jobs it left as they were."""

    async def main(loop: VirtualLoop) -> tuple[RedrivePlan, float, int]:
        ward = Ward(loop, slots=2000)
        plans = ward.insight.redrives
        async with ward.running():
            await failed_jobs(ward, many)
            service = await ward.start("ocr", 0.1)
            if broken:
                service.fails["*"] = FATAL
            running = asyncio.create_task(plans.run())
            plan = await plans.start(QUERY, rules, "anna", None)
            began = loop.time()
            plan = await through(ward, plan.plan_id, plans)
            running.cancel()
            return plan, loop.time() - began, await ward.ledger.count(QUERY)

    return run_virtually(main)


def test_jobs_are_redriven_at_the_pace_of_the_plan() -> None:
    plan, seconds, left = run_plan(MANY, RedriveRules(canary=5, rate=500.0), broken=False)
    assert (plan.state, plan.matched, plan.redriven) == (PlanState.DONE, MANY, MANY)
    assert (plan.succeeded, plan.failed, left) == (MANY, 0, 0)
    assert seconds >= (MANY - 5) / 500.0, "no faster than it may"


def test_a_service_that_is_still_broken_stops_the_plan_after_the_first_few() -> None:
    plan, _, left = run_plan(MANY, RedriveRules(canary=5, rate=200.0), broken=True)
    assert (plan.state, plan.redriven, plan.failed) == (PlanState.STOPPED, 5, 5)
    assert plan.said == "5 of 5 failed again"
    assert left == MANY - 5, "all others are as they were"


def test_without_a_canary_the_part_that_fails_stops_it() -> None:
    plan, _, left = run_plan(500, RedriveRules(canary=0, rate=10.0), broken=True)
    assert plan.state is PlanState.STOPPED
    assert 10 <= plan.redriven < 100
    assert left == 500 - plan.redriven


def test_a_plan_goes_on_after_its_process_died_at_the_worst_moment() -> None:
    """It died after it had said which jobs come next, and had redriven some of them."""

    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        async with ward.running("ocr"):
            await failed_jobs(ward, 40)
            dying = Dying(ward.engine, after=7)
            first = RedrivePlans(
                ward.ledger.shared_records(), dying, runs=lambda: True, now=ward.now
            )
            plan = await first.start(QUERY, RedriveRules(canary=0, rate=20.0), "anna", None)
            with pytest.raises(ProcessDiedHere):
                await first.turn()
            second = RedrivePlans(
                ward.ledger.shared_records(), ward.engine, runs=lambda: True, now=ward.now
            )
            running = asyncio.create_task(second.run())
            plan = await through(ward, plan.plan_id, second)
            running.cancel()
            assert (plan.state, plan.succeeded) == (PlanState.DONE, 40)
            redriven = [r.job.plan.redrive_of for r in ward.ledger.jobs.values()]
            olds = [old for old in redriven if old is not None]
            assert len(olds) == len(set(olds)) == 40, "each once"

    run_virtually(main)


class ProcessDiedHere(BaseException):
    """The process that ran the plan is no more."""


class Dying:
    """The engine of a process that dies when it has redriven so many."""

    def __init__(self, engine: Any, after: int) -> None:
        self._engine = engine
        self._left = after

    async def redrive(self, job_id: str, **more: Any) -> Submitted:
        self._left -= 1
        if self._left < 0:
            raise ProcessDiedHere
        answer: Submitted = await self._engine.redrive(job_id, **more)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def test_someone_stops_a_plan_and_nothing_more_is_redriven() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        plans = ward.insight.redrives
        async with ward.running("ocr"):
            await failed_jobs(ward, 300)
            running = asyncio.create_task(plans.run())
            plan = await plans.start(QUERY, RedriveRules(canary=0, rate=1.0), "anna", None)
            await asyncio.sleep(20)
            stopped = await plans.stop(plan.plan_id, "bert")
            assert stopped is not None
            assert stopped.said == "stopped by bert"
            await asyncio.sleep(0.1)  # the last one is linked
            before = await ward.ledger.count(QUERY)
            await asyncio.sleep(timedelta(hours=1).total_seconds())
            running.cancel()
            assert await ward.ledger.count(QUERY) == before > 200

    run_virtually(main)


def test_no_more_than_so_many_are_under_way() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        plans = ward.insight.redrives
        async with ward.running():
            await failed_jobs(ward, MOST_UNDER_WAY + 200)
            running = asyncio.create_task(plans.run())
            await plans.start(QUERY, RedriveRules(canary=0, rate=1000.0), "anna", None)
            await asyncio.sleep(20)
            running.cancel()
            (plan,) = await plans.plans()
            assert plan.under_way == MOST_UNDER_WAY

    run_virtually(main)


# -- over HTTP -------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "INVALID_BODY"),
    ({"filter": {}}, "FILTER_TOO_WIDE"),
    ({"filter": {"created_from": "2020-01-01T00:00:00Z"}}, "FILTER_TOO_WIDE"),
    ({"filter": {"group": "0123"}}, "GROUP_NOT_FOUND"),
    ({"filter": {"code": "OTHER"}}, "NOTHING_TO_REDRIVE"),
    ({"filter": {"code": "BROKEN"}, "rate": 0}, "INVALID_BODY"),
    ({"filter": {"code": "BROKEN"}, "rate": -1}, "INVALID_BODY"),
    ({"filter": {"code": "BROKEN"}, "rate": True}, "INVALID_BODY"),
    ({"filter": {"code": "BROKEN"}, "canary": 101}, "INVALID_BODY"),
    ({"filter": {"code": "BROKEN"}, "stop_after": "all"}, "INVALID_BODY"),
    ({"filter": {"code": "BROKEN"}, "stop_after": "101%"}, "INVALID_BODY"),
    ({"filter": {"code": "BROKEN", "stuck": True}}, "INVALID_BODY"),
    ({"filter": {"code": "BROKEN", "state": "CANCELLED"}}, "INVALID_BODY"),
]


async def test_a_plan_that_makes_no_sense_is_refused_and_moves_nothing(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.failed("one")
        for body, code in BAD:
            answer = await lucius.post("/v1/redrives", body)
            assert answer.json()["code"] == code, (body, answer.text)
        assert len(await lucius.dlq()) == 1
        assert (await lucius.client.get("/v1/redrives")).json() == {"plans": []}


async def test_a_plan_is_started_shown_and_stopped(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.failed("one")
        body = {"filter": {"code": "BROKEN"}, "canary": 1, "reason": "mended"}
        answer = await lucius.post("/v1/redrives", body)
        assert answer.status_code == 202, answer.text
        plan = answer.json()
        assert answer.headers["location"] == f"/v1/redrives/{plan['planId']}"
        assert (plan["matched"], plan["canary"], plan["stop_after"]) == (1, 1, "10%")
        (listed,) = (await lucius.client.get("/v1/redrives")).json()["plans"]
        assert listed["planId"] == plan["planId"]
        shown = await lucius.client.get(f"/v1/redrives/{plan['planId']}")
        assert shown.json()["reason"] == "mended"
        stopped = await lucius.post(f"/v1/redrives/{plan['planId']}:stop")
        assert stopped.json()["state"] in ("STOPPED", "DONE")
