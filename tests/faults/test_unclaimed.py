"""FM_023: no service is subscribed to a directive, so the bus has nobody to give it to."""

from typing import Any
from unittest.mock import patch

from lucius.core.effects import Event
from lucius.core.job import AbortReason, Job, JobState
from lucius.engine.notices import UnclaimedReporter
from lucius.engine.observer import Incident, Observer
from lucius.http.views import explain
from tests.faults.services import Scribe
from tests.faults.stage import Orchestrator, Stage, staged


class Told(Observer):
    """Remembers the incidents that a metric would count."""

    def __init__(self) -> None:
        self.incidents: list[tuple[Incident, str]] = []

    def incident(self, incident: Incident, cause: str) -> None:
        self.incidents.append((incident, cause))


UNCLAIMED = (Incident.UNCLAIMED, "ocr")


def patch_incident(lucius: Orchestrator, told: Told) -> None:
    lucius.outbox.metrics.incident = told.incident  # type: ignore[method-assign]


async def observed(stage: Stage) -> tuple[Orchestrator, Told]:
    lucius, told = await stage.orchestrator(), Told()
    patch_incident(lucius, told)
    return lucius, told


def no_catch_all() -> Any:
    """Nobody asks the bus for what nobody takes."""

    async def prepared(self: UnclaimedReporter) -> None:
        return None

    return patch.object(UnclaimedReporter, "prepare", prepared)


async def noted(stage: Stage, job: Job) -> list[Event]:
    events = await stage.ledger.events(job.job_id, 0, 1000)
    return [event for event in events if event.type == "directive_unclaimed"]


@staged
async def test_fm_023_reproduce_without_the_catch_all_a_job_fails_and_nobody_says_why(
    stage: Stage,
) -> None:
    with no_catch_all():
        lucius, told = await observed(stage)
        job = await stage.finished(await lucius.submit())
    assert job.state is JobState.FAILED_FINAL
    assert told.incidents == []
    assert await noted(stage, job) == []
    assert "subscribed" not in explain(job)


@staged
async def test_fm_023_prevent_every_attempt_that_nobody_takes_is_reported_at_once(
    stage: Stage,
) -> None:
    lucius, told = await observed(stage)
    job_id = await lucius.submit()
    await stage.until(job_id, lambda job: bool(job.steps[0].executions))
    job = await stage.until(
        job_id, lambda job: job.steps[0].executions[-1].unclaimed_at is not None
    )
    assert stage.loop.time() < 1
    assert told.incidents == [UNCLAIMED]
    assert "attempt 1 of 3, which no service was subscribed to take" in explain(job)
    job = await stage.finished(job_id)
    assert told.incidents == [UNCLAIMED] * 3
    assert [event.attempt_no for event in await noted(stage, job)] == [1, 2, 3]
    assert "(attempt 3 of 3, which no service was subscribed to take): ACK_TIMEOUT" in explain(job)


@staged
async def test_fm_023_prevent_a_directive_that_a_service_takes_is_never_reported(
    stage: Stage,
) -> None:
    lucius, told = await observed(stage)
    await stage.worker(Scribe())
    jobs = [await lucius.submit(number=n) for n in range(50)]
    for job_id in jobs:
        job = await stage.finished(job_id)
        assert job.state is JobState.SUCCEEDED
        assert await noted(stage, job) == []
    assert told.incidents == []


@staged
async def test_fm_023_recover_the_ack_clock_tries_again_and_the_service_is_there_by_then(
    stage: Stage,
) -> None:
    lucius, told = await observed(stage)
    job_id = await lucius.submit()
    await stage.until(job_id, lambda job: bool(job.steps[0].retry_at))
    await stage.worker(Scribe())
    job = await stage.finished(job_id)
    assert job.state is JobState.SUCCEEDED
    first, second = job.steps[0].executions
    assert (first.reason, second.reason) == (AbortReason.ACK_TIMEOUT, None)
    assert second.unclaimed_at is None
    assert told.incidents == [UNCLAIMED]
