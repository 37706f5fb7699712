"""`lucius verify` on outputs that are gone, were changed, or belong to two steps."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from lucius.app.adapters import open_workspace
from lucius.app.building import build
from lucius.app.settings import Settings
from lucius.app.upkeep import verify
from lucius.core.job import Job
from lucius.operations import retention
from tests.services.scripted import Scripted
from tests.upkeep.installation import envelope, folder_of, record_of, settings_in

TWICE = """
step_types: {SCRIPTED: {service: scripted}}
protocols:
  - request_type: SCRIPTED
    protocol_id: twice_v1
    steps: [{type: SCRIPTED, id: front, stage: 1}, {type: SCRIPTED, id: back, stage: 1}]
"""


def wanted(job: Job) -> Path:
    return Path(unquote(urlsplit(job.plan.output_ref).path))


def promoted(settings: Settings, job: Job) -> Path:
    return folder_of(settings, job) / "scripted/output.txt"


async def found(settings: Settings) -> list[tuple[str, str]]:
    return [(drift.kind, drift.subject) for drift in await verify(settings)]


async def test_the_output_stands_in_both_places_and_its_name_carries_the_job(
    settings: Settings, job: Job
) -> None:
    assert wanted(job).name == f"{job.job_id}.txt"
    assert wanted(job).read_bytes() == promoted(settings, job).read_bytes()
    assert job.final_output["uri"] == job.plan.output_ref


async def test_an_output_that_is_gone_is_reported(settings: Settings, job: Job) -> None:
    wanted(job).unlink()
    assert await found(settings) == [("output_gone", wanted(job).as_uri())]
    promoted(settings, job).unlink()
    assert len(await found(settings)) == 2


async def test_an_output_that_was_changed_is_reported(settings: Settings, job: Job) -> None:
    place = promoted(settings, job)
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    (drift,) = await verify(settings)
    assert (drift.kind, drift.subject) == ("output_changed", place.as_uri())
    assert f"{job.job_id} has committed {place.stat().st_size} bytes" in drift.detail


async def test_an_output_that_nobody_may_read_any_more_is_reported(
    settings: Settings, job: Job, tmp_path: Path
) -> None:
    moved = settings_in(tmp_path, LUCIUS_OUTPUT_ROOTS=str(tmp_path / "elsewhere"))
    assert await found(moved) == [("output_unreadable", wanted(job).as_uri())]


async def test_what_is_listed_is_bounded(
    settings: Settings, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_DRIFTS", 1)
    wanted(job).unlink()
    promoted(settings, job).unlink()
    assert [kind for kind, _ in await found(settings)] == ["output_gone", "more"]


async def test_two_steps_of_one_type_keep_their_outputs_apart(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "protocols.yaml").write_text(TWICE)
    runtime = await build(settings, [Scripted()])
    async with runtime.running():
        job_id = (await runtime.engine.submit(envelope(settings))).job_id
        job = await runtime.engine.ended(job_id, 30)
    assert job is not None
    assert job.state == "SUCCEEDED"
    contents = {
        (folder_of(settings, job) / name / "output.txt").read_text() for name in ("front", "back")
    }
    assert len(contents) == 2
    assert await verify(settings) == []


async def test_two_steps_with_one_place_are_reported(settings: Settings, job: Job) -> None:
    uri, record = await record_of(settings, job)
    other = json.dumps({**json.loads(record), "step_id": "another"})
    await open_workspace(settings).write(uri.replace(".json", "0.json"), other.encode())
    kinds = {kind for kind, _ in await found(settings)}
    assert "outputs_collide" in kinds
