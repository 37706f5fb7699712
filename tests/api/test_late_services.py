"""What is published before its service is there: kept for one that a protocol names, else reported."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.configs.files import FileConfig
from lucius.core.job import Job, Step, StepState
from tests.api.live import Live, live

WORDS = """
step_types:
  WORDS: {service: words}
protocols:
  - {request_type: WORDS, protocol_id: words_v1, steps: [WORDS]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "protocols").mkdir()
    return tmp_path / "protocols"


@pytest.fixture
def settings(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(FileConfig, "pause", timedelta(milliseconds=20))
    protocols = f"packaged,{folder}"
    return {"data": tmp_path / "data", "protocols": protocols}


async def until(lucius: Live, job_id: str, holds: Callable[[Step], bool]) -> Job:
    """The job once something holds of its only step."""
    engine = lucius.runtime.engine
    job = await engine.job(job_id)
    async with asyncio.timeout(120):
        while job is not None and not holds(job.steps[0]):
            job = await engine.wait(job_id, job.version, 20)
    assert job is not None
    return job


def sent(step: Step) -> bool:
    return step.state is StepState.AWAITING_ACK


def untaken(step: Step) -> bool:
    return sent(step) and step.executions[-1].unclaimed_at is not None


async def noticed(lucius: Live, change: Callable[[], object]) -> None:
    """Change the configuration, and wait until the running process has taken it up by itself."""
    prepare, taken_up = lucius.runtime.gateway.prepare, asyncio.Event()

    async def told() -> None:
        await prepare()
        taken_up.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lucius.runtime.gateway, "prepare", told)
        change()
        async with asyncio.timeout(120):
            await taken_up.wait()


def unclaimed(lucius: Live, service: str) -> float | None:
    labels = {"incident": "unclaimed", "cause": service}
    return lucius.runtime.registry.get_sample_value("lucius_incidents_total", labels)


async def test_a_worker_whose_first_pull_comes_late_gets_the_first_attempt_at_once(
    settings: dict[str, Any],
) -> None:
    async with live(**settings) as lucius:
        job_id = await lucius.accepted()
        await until(lucius, job_id, sent)
        (directive,) = await lucius.pull("ocr", wait=0)
        assert (directive["jobId"], directive["attempt_no"]) == (job_id, 1)
        assert unclaimed(lucius, "ocr") == 0


async def test_so_does_a_worker_of_a_protocol_that_came_while_the_process_ran(
    settings: dict[str, Any], folder: Path
) -> None:
    async with live(**settings) as lucius:
        await noticed(lucius, lambda: (folder / "words.yaml").write_text(WORDS))
        job_id = await lucius.accepted(request_type="WORDS")
        await until(lucius, job_id, sent)
        (directive,) = await lucius.pull("words", wait=0)
        assert (directive["jobId"], directive["attempt_no"]) == (job_id, 1)
        assert unclaimed(lucius, "words") == 0


async def test_a_job_whose_service_no_protocol_names_any_more_says_that_nobody_takes_it(
    settings: dict[str, Any], folder: Path
) -> None:
    (folder / "words.yaml").write_text(WORDS)
    async with live(**settings) as lucius:
        job_id = await lucius.accepted(request_type="WORDS")
        await until(lucius, job_id, sent)
    (folder / "words.yaml").unlink()
    async with live(**settings) as lucius:
        job = await until(lucius, job_id, untaken)
        assert job.steps[0].attempt_no == 1
        view = await lucius.job(job_id)
        assert "words to acknowledge it" in view["explanation"]
        assert "which no service was subscribed to take" in view["explanation"]
        events = (await lucius.client.get(f"/v1/jobs/{job_id}/events")).json()["events"]
        (event,) = [event for event in events if event["event_type"] == "directive_unclaimed"]
        assert event["payload"]["service"] == "words"
        for _ in range(100):  # the reporter counts once its own question is answered
            await asyncio.sleep(0)
        assert unclaimed(lucius, "words") == 1


async def test_when_the_protocol_is_back_the_next_attempt_is_taken(
    settings: dict[str, Any], folder: Path
) -> None:
    (folder / "words.yaml").write_text(WORDS)
    settings |= {"ack_timeout_seconds": "0.2", "ack_backoff_seconds": "0.2", "max_attempts": "20"}
    async with live(**settings) as lucius:
        job_id = await lucius.accepted(request_type="WORDS")
    (folder / "words.yaml").unlink()
    async with live(**settings) as lucius:
        await until(lucius, job_id, untaken)
        await noticed(lucius, lambda: (folder / "words.yaml").write_text(WORDS))
        (directive,) = await lucius.pull("words", wait=20)
        await lucius.answer(directive)
        assert (await lucius.job(job_id))["state"] == "SUCCEEDED"
