"""Publishing what is pending now: counted, without its backoff, never past the maximum of attempts."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.core.errors import BusError, BusUnavailableError, PublishRefusedError
from lucius.core.job import EntryState, Job, StepState
from lucius.engine import dispatcher as outbox_retry
from tests.api.live import Live, live

REFUSED = PublishRefusedError("too large for this broker")


@pytest.fixture
async def lucius(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path) as lucius:
        yield lucius


def fail_with(lucius: Live, error: BusError | None) -> None:
    assert isinstance(lucius.runtime.bus, MemoryBus)
    lucius.runtime.bus.fail_with(error, ("publish",))


async def until(lucius: Live, job_id: str, enough: Callable[[Job], bool]) -> Job:
    engine = lucius.runtime.engine
    job = await engine.job(job_id)
    while job is not None and not enough(job):
        job = await engine.wait(job_id, job.version, 10)
    assert job is not None
    return job


def refused(times: int) -> Callable[[Job], bool]:
    return lambda job: job.terminal or job.steps[0].used >= times


async def retried(lucius: Live) -> tuple[int, int, int]:
    answer = await lucius.post("/v1/admin/outbox/retry")
    assert answer.status_code == 200, answer.text
    counts = answer.json()
    return counts["published"], counts["pending"], counts["failed"]


async def test_nothing_pending_is_nothing_done(lucius: Live) -> None:
    assert await retried(lucius) == (0, 0, 0)


async def test_a_refused_publish_does_not_wait_out_its_backoff(lucius: Live) -> None:
    fail_with(lucius, REFUSED)
    job_id = await lucius.accepted()
    waiting = await until(lucius, job_id, refused(1))
    assert waiting.steps[0].entry is not None
    assert waiting.steps[0].entry.ready_at is not None, "30 s from now"
    fail_with(lucius, None)
    assert await retried(lucius) == (1, 0, 0)
    (directive,) = await lucius.pull()
    assert (directive["jobId"], directive["attempt_no"]) == (job_id, 2)


async def test_a_publish_that_is_refused_again_uses_up_attempts_to_the_maximum(
    lucius: Live,
) -> None:
    fail_with(lucius, REFUSED)
    job_id = await lucius.accepted()
    await until(lucius, job_id, refused(1))
    assert await retried(lucius) == (0, 1, 0)
    assert await retried(lucius) == (0, 0, 1)
    assert await retried(lucius) == (0, 0, 0)
    job = await lucius.job(job_id)
    assert (job["state"], job["error_code"]) == ("FAILED_FINAL", "PUBLISH_REFUSED")
    assert job["steps"][0]["attempt_no"] == job["steps"][0]["max_attempts"] == 3


async def test_what_was_released_and_not_sent_is_asked_for_again_as_the_same_attempt(
    lucius: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_retry, "RECENT", 0 * outbox_retry.PATIENCE)
    monkeypatch.setattr(outbox_retry, "PATIENCE", outbox_retry.PATIENCE / 50)
    fail_with(lucius, BusUnavailableError("the broker is down"))
    job_id = await lucius.accepted()
    before = await until(lucius, job_id, lambda job: job.steps[0].out)
    assert await retried(lucius) == (0, 1, 0)
    again = await lucius.runtime.engine.job(job_id)
    assert again is not None
    assert again.steps[0].used == 0, "unknown is not failed"
    assert again.steps[0].executions == before.steps[0].executions
    fail_with(lucius, None)
    directives = await lucius.pull(limit=5)
    assert {d["lease_id"] for d in directives} == {before.steps[0].executions[-1].exec_id}


async def test_what_waits_for_the_window_is_counted_as_pending(lucius: Live) -> None:
    lucius.runtime.outbox.windows.close()
    for number in range(3):
        await lucius.accepted(str(number))
    assert await retried(lucius) == (0, 3, 0)
    lucius.runtime.outbox.windows.reopen()
    await retried(lucius)
    assert len(await lucius.pull(limit=5)) >= 1


async def test_a_job_that_is_paused_stays_unpublished(lucius: Live) -> None:
    fail_with(lucius, REFUSED)
    job_id = await lucius.accepted()
    await until(lucius, job_id, refused(1))
    await lucius.order(job_id, "pause")
    fail_with(lucius, None)
    assert await retried(lucius) == (0, 0, 0)
    job = await lucius.runtime.engine.job(job_id)
    assert job is not None
    assert job.steps[0].state is StepState.FAILED_RETRY
    assert job.steps[0].entry is not None
    assert job.steps[0].entry.state is EntryState.FAILED_FINAL
