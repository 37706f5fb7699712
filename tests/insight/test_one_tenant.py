"""Nothing that one tenant asks for, says or breaks takes anything from the other tenants."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lucius.core.errors import RequestError
from lucius.core.wire import parse_reply
from lucius.operations.failures import EVERY
from lucius.operations.redrives import MOST_LIVE, MOST_OF_A_TENANT, RESERVED
from lucius.operations.service_stats import read_record
from lucius.operations.shared_records import SharedRecords
from lucius.platform import FatalError
from lucius.ports.ledger import JobQuery
from lucius.ports.redrives import PlanState, RedrivePlan, RedriveRules
from tests.api.live import live
from tests.insight.test_redrive_pace import in_ward
from tests.insight.test_redrives import QUERY, failed_jobs, through
from tests.insight.ward import Ward
from tests.virtual import VirtualLoop, run_virtually

OTHER = replace(QUERY, services=frozenset({"ocr"}))
SLOW = RedriveRules(canary=0, rate=0.1)


def test_a_plan_that_fails_stops_alone_and_says_so() -> None:
    async def main(ward: Ward) -> None:
        await failed_jobs(ward, 20)
        await ward.start("ocr", 0.1)
        plans = ward.insight.redrives
        bad = await plans.start(OTHER, RedriveRules(canary=5, rate=1e-300), "anna", None)
        good = await plans.start(QUERY, RedriveRules(canary=0, rate=20.0), "bert", None)
        running = asyncio.create_task(plans.run())
        assert (await through(ward, good.plan_id, plans)).succeeded == 20
        stopped = await through(ward, bad.plan_id, plans)
        assert stopped.state is PlanState.STOPPED
        assert "1e-300 jobs a second" in stopped.said
        assert not running.done()
        running.cancel()

    in_ward(main)


def test_a_stored_plan_that_cannot_be_read_hides_no_other() -> None:
    async def main(ward: Ward) -> None:
        await failed_jobs(ward, 3)
        await ward.start("ocr", 0.1)
        plans, records = (
            ward.insight.redrives,
            SharedRecords(ward.ledger.shared_records(), "redrive"),
        )
        broken: dict[str, Any] = {"state": "RUNNING", "rules": "none", "pending": {}}
        await records.change("plan_broken", lambda stored: broken)
        good = await plans.start(QUERY, RedriveRules(canary=0, rate=20.0), "bert", None)
        for _ in range(2):
            await plans.turn()
        shown = {plan.plan_id: plan for plan in await plans.plans()}
        assert shown["plan_broken"].state is PlanState.STOPPED
        assert "cannot be read" in shown["plan_broken"].said
        assert shown[good.plan_id].redriven == 3
        assert (await records.read())["plan_broken"]["state"] == "STOPPED"

    in_ward(main)


def of_tenant(tenant_id: str, number: int) -> JobQuery:
    codes = frozenset({"BROKEN", f"OTHER_{number}"})
    return JobQuery(dlq=True, codes=codes, tenant_ids=frozenset({tenant_id}))


def test_a_tenant_has_its_share_of_plans_and_operators_have_theirs() -> None:
    async def main(ward: Ward) -> None:
        await failed_jobs(ward, 3)
        plans = ward.insight.redrives
        ward.engine.count = counted  # type: ignore[method-assign]

        async def start(tenant_id: str, number: int, *, bound: bool = True) -> RedrivePlan:
            query = of_tenant(tenant_id, number)
            return await plans.start(query, SLOW, "anna", None, bound=bound)

        async def refused(tenant_id: str) -> str:
            with pytest.raises(RequestError) as error:
                await start(tenant_id, 99)
            assert (error.value.code, error.value.status) == ("TOO_MANY_PLANS", 409)
            return error.value.detail

        given = [asyncio.create_task(start("a", number)) for number in range(MOST_LIVE)]
        done = await asyncio.gather(*given, return_exceptions=True)
        assert sum(isinstance(each, RedrivePlan) for each in done) == MOST_OF_A_TENANT
        assert "'a'" in await refused("a")
        for number in range(MOST_LIVE - RESERVED - MOST_OF_A_TENANT):
            await start(f"t{number}", number)
        assert "tenants" in await refused("late")
        for number in range(RESERVED):
            await start("a", 200 + number, bound=False)
        with pytest.raises(RequestError, match=str(MOST_LIVE)):
            await start("a", 300, bound=False)

    in_ward(main)


async def counted(query: JobQuery) -> int:
    return 3


FILTERS: tuple[tuple[Mapping[str, Any], str], ...] = (
    ({"code": "C" * 257}, "/filter/code"),
    ({"tenant_id": ["t" * 257]}, "/filter/tenant_id"),
    ({"group": "g" * 257}, "/filter/group"),
    ({"request_type": "r" * 257}, "/filter/request_type"),
    ({"code": [f"{n:0200}" for n in range(100)]}, "/filter"),
)


async def test_the_filter_and_the_rate_of_a_plan_are_bounded(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.failed("one")
        for filters, pointer in FILTERS:
            answer = await lucius.post("/v1/redrives", {"filter": filters})
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["pointer"] == pointer
        body = {"filter": {"code": "BROKEN"}, "rate": 1e-300}
        answer = await lucius.post("/v1/redrives", body)
        assert answer.json()["errors"][0]["pointer"] == "/rate"


# -- failures --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_codes_of_one_tenant_leave_room_for_the_failures_of_others() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop, slots=100)
        book = ward.activity.failures
        async with ward.running("ocr"):
            service = ward.services["ocr"]
            for round_ in range(6):
                for number in range(130):
                    said = "".join(chr(97 + int(digit)) for digit in f"{round_}{number:03}")
                    service.fails = {"loud": FatalError(said), "*": FatalError("it is broken")}
                    for _ in range(2):
                        await ward.ended(await ward.submit(tenant_id="loud"))
                if round_ == 0:
                    await ward.ended(await ward.submit(tenant_id="quiet"))
                    assert len(await book.groups({"quiet"})) == 1
                await book.write()
            await asyncio.sleep(EVERY.total_seconds())
            await book.write()
            assert len(await book.groups({"quiet"})) == 1, "many groups of another push none out"

    run_virtually(main)


SECRET = "ask mallory for the password"


def failed_with(code: Any, message: str = "") -> tuple[str, str]:
    body = {"type": "RESULT", "jobId": "j", "stepId": "a", "attempt_no": 1, "lease_id": "l"}
    error = {"code": code, "message": message}
    _, received = parse_reply({**body, "status": "FAILED", "error": error})
    fault = getattr(received, "fault", None)
    assert fault is not None
    return fault.code, fault.message


@pytest.mark.parametrize("code", [SECRET, "lower_case", "A" * 65, "A-B", "A\n", {"a": 1}, 7.5])
def test_a_code_that_is_free_text_goes_into_the_message(code: Any) -> None:
    assert failed_with(code, "why") == ("STEP_FAILED", f"{code}: why")
    assert failed_with(code) == ("STEP_FAILED", str(code))
    assert failed_with("A_1", "why") == ("A_1", "why")


def test_a_caller_hears_of_the_failures_of_its_own_tenants_only() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        async with ward.running("ocr"):
            ward.services["ocr"].fails = {"loud": FatalError(SECRET, code="MALLORYS_WORD")}
            for _ in range(6):
                await ward.ended(await ward.submit(tenant_id="loud"))
            diagnoser = ward.insight.diagnoser
            causes = {
                who: [f.cause for f in await diagnoser.system({}, {}, tenants=tenants)]
                for who, tenants in (("all", None), ("loud", {"loud"}), ("quiet", {"quiet"}))
            }
            alone = ["TENANT_FAILS_ALIKE", "JOBS_FAILED"]
            assert causes == {"all": alone, "loud": alone, "quiet": []}
            ward.services["ocr"].fails |= {"quiet": FatalError("mine")}
            mine = await ward.submit(tenant_id="quiet")
            await ward.ended(mine)
            told = [await ward.why(mine, tenants={"quiet"})]
            told += await diagnoser.system({}, {}, tenants={"quiet"})
            alike = "SERVICE_FAILS_ALIKE"
            assert [each.cause for each in told] == [alike, alike, "JOBS_FAILED"]
            assert [each.impact and each.impact.tenants for each in told] == [None, None, ["quiet"]]
            said = repr(told)
            assert "mallory" not in said.lower()
            record = ward.activity.workers.record()
            read = read_record(record)["ocr"].failing
            assert read is not None
            assert read.tenants == {"loud", "quiet"}, "it is known after a restart"

    run_virtually(main)
