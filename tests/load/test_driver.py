"""The driver keeps to its rate or its concurrency, and every job is counted once."""

import asyncio
from collections import Counter
from typing import cast

import pytest

from lucius.client import UnreachableError
from lucius.client.plain import PlainClient
from lucius.dev.load import Driver, JobEnd, LoadPlan, LoadTally, Target
from lucius.dev.load_targets import ServerTarget
from tests.virtual import VirtualLoop, run_virtually


class Timed:
    """A target whose jobs take their time, and that fails as it is told."""

    def __init__(self, seconds: float, end: JobEnd | None = None) -> None:
        self._seconds, self._end = seconds, end or JobEnd("SUCCEEDED")
        self.begun: list[float] = []
        self.most, self.running = 0, 0
        self.tenants: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    async def run(self, tenant: str, kind: str) -> JobEnd:
        self.begun.append(asyncio.get_running_loop().time())
        self.tenants[tenant] += 1
        self.kinds[kind] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self._seconds)
        self.running -= 1
        return self._end


def driven(target: Target, plan: LoadPlan) -> LoadTally:
    async def work(loop: VirtualLoop) -> LoadTally:
        driver = Driver(target, plan)
        await driver.run()
        return driver.tally

    return run_virtually(work)


def test_a_load_that_is_ended_leaves_nothing_under_way() -> None:
    async def work(loop: VirtualLoop) -> None:
        for plan in (LoadPlan(rate=10, jobs=50), LoadPlan(concurrency=5, jobs=50)):
            running = asyncio.ensure_future(Driver(Timed(1e6), plan).run())
            await asyncio.sleep(1)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(work)


class Away:
    """A server that refuses every connection at once."""

    async def submit(self, *args: object, **options: object) -> object:
        raise UnreachableError("the connection was refused")


def test_a_server_that_has_died_is_not_asked_a_thousand_times_a_second() -> None:
    async def work(loop: VirtualLoop) -> LoadTally:
        target = ServerTarget(cast(PlainClient, Away()), {"input_ref": "s3://b/in"}, None)
        driver = Driver(target, LoadPlan(concurrency=2, seconds=10))
        await driver.run()
        return driver.tally

    tally = run_virtually(work)
    assert tally.errors == {"UNREACHABLE": tally.started}
    assert 20 <= tally.started <= 120


class Failing:
    """A server whose jobs all end with the same error."""

    async def submit(self, *args: object, **options: object) -> dict[str, str]:
        return {"jobId": "job_1"}

    async def job(self, *args: object, **options: object) -> dict[str, str]:
        return {"state": "FAILED_FINAL", "error_code": "OBJECT_MISSING"}


def test_a_concurrency_is_never_exceeded() -> None:
    target = Timed(1)
    tally = driven(target, LoadPlan(concurrency=4, jobs=10))
    assert (target.most, tally.ended, max(target.begun)) == (4, 10, 2)


def test_a_job_that_had_to_wait_for_its_turn_is_measured_from_when_it_was_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lucius.dev.load.MOST_AT_ONCE", 1)
    tally = driven(Timed(1), LoadPlan(rate=10, jobs=3))
    assert tally.percentiles()["max"] == pytest.approx(2.8), "due at 0.2 s, and done at 3 s"
