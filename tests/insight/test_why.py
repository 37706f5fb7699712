"""`why` names the right cause of an injected fault, and none where nothing is wrong."""

import asyncio
import re
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import patch

import pytest

from lucius.contract.causes import CAUSES, Severity
from lucius.core.decide import submit
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.core.plan import FIRST_SHARD, TEMPORAL
from lucius.core.routing import LANES
from lucius.operations import why
from lucius.operations.facts import Clues, Facts
from lucius.operations.why import diagnose, unowned_lanes
from lucius.ports.diagnosis import Diagnosis
from tests.insight.faults import FAULTS, InjectedFault
from tests.insight.ward import FATAL, LATER, Ward
from tests.virtual import VirtualLoop, run_virtually

Asked = tuple[Job, Facts, Clues]
_found: dict[str, tuple[Diagnosis, Asked]] = {}


def injected_once(injected: InjectedFault) -> tuple[Diagnosis, Asked]:
    """The answer, and what the rules looked at; each fault is injected once for all the tests."""
    asked: list[Asked] = []

    def remembering(job: Job, facts: Facts, clues: Clues) -> Diagnosis:
        asked.append((job, facts, clues))
        return diagnose(job, facts, clues)

    async def main(loop: VirtualLoop) -> Diagnosis:
        ward = injected.ward_on(loop)
        async with ward.running(*injected.running):
            job_id = await injected.inject(ward)
            with patch("lucius.operations.why.diagnose", remembering):
                return await ward.why(job_id)

    if injected.name not in _found:
        _found[injected.name] = (run_virtually(main), asked[-1])
    return _found[injected.name]


def found(injected: InjectedFault) -> Diagnosis:
    return injected_once(injected)[0]


def test_the_faults_are_many_and_of_many_kinds() -> None:
    assert len({each.cause for each in FAULTS}) >= 25
    assert len(FAULTS) >= 60


@pytest.mark.parametrize("injected", FAULTS, ids=lambda each: each.name)
def test_the_top_answer_is_right(injected: InjectedFault) -> None:
    """In every one of them, which is more than 95 of 100."""
    assert found(injected).cause == injected.cause


def unowned() -> Asked:
    """A job on a lane that nobody owns, which cannot be where one process has all lanes."""

    async def main(loop: VirtualLoop) -> Asked:
        ward = Ward(loop)
        job = await ward.job(await ward.submit())
        others = set(range(LANES)) - {job.plan.routing.lane}
        return job, Facts(loop.now(), {}, owned=others), Clues()

    return run_virtually(main)


@pytest.mark.parametrize(
    ("table", "number"),
    [(table, n) for table in ("JOB_RULES", "STEP_RULES") for n in range(len(getattr(why, table)))],
)
def test_without_any_one_of_the_rules_some_answer_is_another(
    table: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the faults are many enough to prove each of them."""
    asked = [unowned(), *(injected_once(each)[1] for each in FAULTS)]
    before = [diagnose(*each) for each in asked]
    left = [rule for n, rule in enumerate(getattr(why, table)) if n != number]
    monkeypatch.setattr(why, table, left)
    assert [diagnose(*each) for each in asked] != before


@pytest.mark.parametrize("injected", FAULTS, ids=lambda each: each.name)
def test_an_answer_says_what_comes_next_and_what_helps(injected: InjectedFault) -> None:
    finding = found(injected)
    assert finding.cause in CAUSES
    assert finding.summary
    assert finding.evidence
    assert finding.next_what
    assert finding.command.split()[0] in ("lucius", "timedatectl")


def test_a_worker_at_work_is_known_since_when_and_heard_of() -> None:
    finding = found(next(each for each in FAULTS if each.cause == "AT_WORK"))
    heard = [each for each in finding.evidence if each.what == "last heard of"]
    assert finding.since is not None
    assert heard[0].at is not None
    assert heard[0].at > finding.since


def test_how_far_a_worker_says_it_is_is_shown_until_its_work_ends() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        ward = Ward(loop)
        async with ward.running():
            (await ward.start("ocr", 3600)).says = "page 3 of 9"
            job_id = await ward.submit()
            await asyncio.sleep(1800)
            at_work = await ward.why(job_id)
            lease = (await ward.job(job_id)).steps[0].executions[-1].exec_id
            assert ward.activity.workers.progress(lease) == "page 3 of 9"
            await ward.ended(job_id)
            assert ward.activity.workers.progress(lease) is None
            return [each.what for each in at_work.evidence]

    assert "it says: page 3 of 9" in run_virtually(main)


def test_the_place_of_a_defect_in_the_services_code_is_named() -> None:
    finding = found(next(each for each in FAULTS if "defect" in each.name))
    assert "ward.py:" in finding.summary


def test_a_job_that_fails_alone_is_told_from_others_only_where_others_succeed() -> None:
    """And what failed alike can be listed."""

    async def main(loop: VirtualLoop) -> tuple[Diagnosis, Diagnosis]:
        ward = Ward(loop)
        async with ward.running("ocr"):
            ward.services["ocr"].fails["tenant_b"] = FATAL
            job_id = await ward.submit(tenant_id="tenant_b")
            await ward.ended(job_id)
            first = await ward.why(job_id)
            await ward.ended(await ward.submit())
            return first, await ward.why(job_id)

    first, later = run_virtually(main)
    assert (first.cause, later.cause) == ("JOB_FAILS_ALONE", "JOB_FAILS_ALONE")
    assert "too few jobs have failed so" in first.summary
    assert "other jobs of ocr succeed" in later.summary
    assert any("lucius jobs --group " in each.what for each in later.evidence)


def test_where_one_tenant_fails_no_order_is_advised_that_would_stop_the_others() -> None:
    for each in FAULTS:
        if each.cause == "TENANT_FAILS_ALIKE":
            assert "pause" not in found(each).command


def test_a_service_with_few_repeated_failures_is_not_degraded() -> None:
    """Four of them, or less than a fifth of the attempts, say nothing."""

    async def main(loop: VirtualLoop) -> list[list[str]]:
        ward = Ward(loop)
        said = []
        async with ward.running("ocr"):
            ward.services["ocr"].fails["tenant_b"] = LATER
            for failures, successes in ((4, 1), (1, 0), (0, 100)):
                for _ in range(failures):
                    await ward.submit(tenant_id="tenant_b")
                await asyncio.sleep(5)
                for job_id in [await ward.submit() for _ in range(successes)]:
                    await ward.ended(job_id)
                said.append(await ward.wrong())
        return said

    few, many, diluted = run_virtually(main)
    assert (few, many, diluted) == ([], ["SERVICE_DEGRADED"], [])


def test_a_job_that_waits_for_a_service_without_a_worker_says_so_at_once() -> None:
    waits = found(next(each for each in FAULTS if each.name == "it has just been sent"))
    assert "no worker of ocr has been seen yet" in waits.summary


def test_who_is_busy_says_the_place_in_line_and_when() -> None:
    finding = found(next(each for each in FAULTS if each.name == "it waits behind others"))
    assert "1 at work" in finding.summary
    assert any("of its tenant are before it" in each.what for each in finding.evidence)
    assert re.fullmatch(r"a worker takes it, in \d+ min to \d+ min", finding.next_what)
    assert finding.next_at is None, "a range is no moment"


def test_a_lane_that_nobody_owns_is_named() -> None:
    job, facts, clues = unowned()
    assert diagnose(job, facts, clues).cause == "LANE_UNOWNED"
    assert diagnose(job, replace(facts, owned=range(LANES)), clues).cause != "LANE_UNOWNED"


def test_lanes_of_jobs_on_temporal_are_those_of_invokers() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        plan = (await ward.job(await ward.submit())).plan
        job = submit(replace(plan, engine=TEMPORAL), loop.now()).job
        invokers = {FIRST_SHARD[TEMPORAL] + lane for lane in range(LANES)}
        held = Facts(loop.now(), {}, owned=invokers)
        assert diagnose(job, held, Clues()).cause != "LANE_UNOWNED"
        finding = diagnose(job, Facts(loop.now(), {}, owned=invokers - {job.plan.shard}), Clues())
        assert (finding.cause, finding.command) == ("LANE_UNOWNED", "lucius invoker")
        assert f"lane {plan.routing.lane}," in finding.summary

    run_virtually(main)


@pytest.mark.parametrize(
    ("owned", "said"),
    [
        (range(LANES), []),
        (range(LANES, 2 * LANES), []),
        (range(2 * LANES), []),
        (range(LANES + 1, 2 * LANES), ["no invoker owns the lanes 0"]),
        (range(1, 2 * LANES), ["no reconciler owns the lanes 0"]),
        ((), [f"no reconciler owns the lanes {', '.join(map(str, range(LANES)))}"]),
    ],
    ids=str,
)
def test_lanes_that_nobody_owns_are_named_for_the_engines_that_run(
    owned: Collection[int], said: list[str]
) -> None:
    facts = Facts(datetime.now(UTC), {}, owned=owned)
    assert [finding.summary for finding in unowned_lanes(facts)] == said


def test_nothing_is_named_where_nothing_is_wrong() -> None:
    """Under load, at every moment, and after a fault is over."""

    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        async with ward.running("ocr", "embedding", "sis"):
            jobs = [await ward.submit("STAGE", f"tenant_{n % 3}") for n in range(60)]
            for _ in range(60):
                await asyncio.sleep(0.7)
                assert await ward.wrong() == []
                for job_id in jobs[::7]:
                    assert (await ward.why(job_id)).severity <= Severity.WAITS
            ward.bus.away = True
            await asyncio.sleep(30)
            assert (await ward.wrong())[0] == "BUS_AWAY"
            ward.bus.away = False
            await asyncio.sleep(60)
            assert await ward.wrong() == []

    run_virtually(main)


SYSTEM = {
    "nobody was ever there": ["NO_WORKER_EVER"],
    "nobody was ever there and it waits for its second attempt": ["NO_WORKER_EVER"],
    "nobody was ever there and it failed": ["JOBS_FAILED"],
    "its replies are refused": ["BAD_TOKEN"],
    "its replies are refused and it waits for its second attempt": ["BAD_TOKEN"],
    "workers went away": ["WORKERS_SILENT"],
    "workers went away and it waits for its second attempt": ["WORKERS_SILENT"],
    "a worker was killed with all its slots taken": ["WORKERS_SILENT"],
    "its protocol is gone": ["PROTOCOL_GONE"],
    "its worker hangs": ["WORKER_QUIET"],
    "its worker has worked for an hour": [],
    "nobody serves its tenant": [],
    "its service fails every job": ["SERVICE_FAILS_ALIKE", "JOBS_FAILED"],
    "its tenant sends the same locked document six times": ["TENANT_FAILS_ALIKE", "JOBS_FAILED"],
    "most attempts of its service are told to wait and some succeed": ["SERVICE_DEGRADED"],
    "its protocol is gone and nobody is subscribed": ["PROTOCOL_GONE"],
    "its service is paused": ["SERVICE_PAUSED"],
    "the broker is away": ["BUS_AWAY"],
    "the ledger takes no writes": ["LEDGER_AWAY"],
    "the ledger and the broker are away": ["LEDGER_AWAY", "BUS_AWAY"],
    "nobody is subscribed": ["NOT_SUBSCRIBED"],
    "workers went away and another service is paused": ["WORKERS_SILENT"],
    "it alone fails": ["JOBS_FAILED"],
    "its client could not be told": ["WEBHOOK_FAILS"],
    "its worker was killed with work in hand and used to pull": ["WORKER_QUIET"],
    "its step takes much longer than steps of its service do": ["WORKER_QUIET"],
    "its clock is behind what is stored": ["CLOCK_OFF"],
    "it waits behind others": [],
    "it is paused": [],
}


@pytest.mark.parametrize("name", SYSTEM)
def test_the_system_says_what_is_wrong_worst_first(name: str) -> None:
    injected = next(each for each in FAULTS if each.name == name)

    async def main(loop: VirtualLoop) -> list[str]:
        ward = injected.ward_on(loop)
        async with ward.running(*injected.running):
            await injected.inject(ward)
            return await ward.wrong()

    assert run_virtually(main) == SYSTEM[name]


def test_a_caller_bound_to_tenants_reads_no_counts_names_or_words_of_others() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop, slots=1)
        async with ward.running():
            await ward.start("ocr", 60)
            for _ in range(30):
                await ward.submit(tenant_id="tenant_a")
            mine = await ward.submit(tenant_id="tenant_b")
            await asyncio.sleep(100)
            await ward.activity.paused.pause("ocr", "anna", "tenant_a floods it")
            paused = await ward.why(mine, tenants={"tenant_b"})
            await ward.activity.paused.resume("ocr")
            for _ in range(12):
                mine = await ward.submit(tenant_id="tenant_b")
            busy = await ward.why(mine, tenants={"tenant_b"})
        assert (paused.cause, busy.cause) == ("SERVICE_PAUSED", "BUSY")
        for finding in (paused, busy):
            said = " ".join([finding.summary, *(each.what for each in finding.evidence)])
            assert not {"anna", "tenant_a", "waiting", "minute", "at work"} & set(said.split())

    run_virtually(main)


def test_what_nobody_took_is_wrong_until_it_is_sent_again_or_cancelled() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        async with ward.running():
            job_id = await ward.submit()
            await asyncio.sleep(45)  # the first attempt has ended without an ACK, the second waits
            assert await ward.wrong() == ["NO_WORKER_EVER"]
            ward.activity.workers.forgot(range(LANES))
            assert await ward.wrong() == []
            ward.activity.workers.took_up(await ward.job(job_id))
            assert await ward.wrong() == ["NO_WORKER_EVER"]
            await ward.apply(job_id, CancelRequested(immediate=True))
            assert await ward.wrong() == []

    run_virtually(main)
