"""A worker that reports a credential does not get it into the job, whichever way its RESULT comes."""

import json
from pathlib import Path
from typing import Any

import pytest

from lucius.platform import Output, Service, Task
from tests.api.live import BOUND, Live, live

SECRET = "s3cr3t-value"
LEAKS: list[tuple[Any, Any]] = [
    (f"https://user:{SECRET}@host/out", {"uri": "https://host/out"}),
    (f"https://host/out?sv=1&sig={SECRET}", {"uri": "https://host/out"}),
    ({"uri": "s3://b/out", "size": 3, "token": SECRET}, {"uri": "s3://b/out", "size": 3}),
]


class Leaking(Service):
    """Reports what it was given, over the bus."""

    name = "ocr"
    step_types = ("OCR",)
    commit = False

    def __init__(self, reference: Any) -> None:
        self._reference = reference

    async def execute(self, task: Task) -> Output:
        return Output(ref=self._reference)


async def shown(world: Live, job_id: str) -> str:
    """All that a reader can see of a job."""
    paths = ("", "/steps", "/executions", "/events")
    answers = [await world.client.get(f"/v1/jobs/{job_id}{path}") for path in paths]
    return "".join(answer.text for answer in answers)


def stored(data: Path) -> bytes:
    return b"".join(path.read_bytes() for path in data.glob("ledger.db*"))


@pytest.mark.parametrize(("leak", "kept"), LEAKS, ids=["user", "signature", "field"])
@pytest.mark.parametrize("field", ["output_ref", "artifact_refs"])
@pytest.mark.parametrize("together", [False, True], ids=["callback", "replies"])
async def test_over_http_it_is_neither_stored_nor_shown_nor_passed_on(
    tmp_path: Path, leak: Any, kept: Any, field: str, together: bool
) -> None:
    marked = {**kept, "credentials_removed": True}
    async with live(tmp_path) as world:
        job_id = await world.accepted(request_type="OCR->EMBEDDING")
        (directive,) = await world.pull()
        assert await report(world, directive, {field: leak}, together) == "applied"
        (following,) = await world.pull("embedding")
        assert following["previous"] == {"ocr": marked}
        job = await world.job(job_id)
        assert job["steps"][0]["result_ref"] == marked
        assert SECRET not in await shown(world, job_id) + json.dumps(following)
    assert SECRET.encode() not in stored(tmp_path)


async def report(
    world: Live, directive: dict[str, Any], fields: dict[str, Any], together: bool
) -> str:
    if not together:
        answer = await world.reply("result", directive, status="SUCCEEDED", **fields)
        return str(answer.json()["outcome"])
    bound = {name: directive[name] for name in (*BOUND, "callback_token")}
    reply = {**bound, "type": "RESULT", "status": "SUCCEEDED", **fields}
    answer = await world.post("/v1/services/ocr/replies", {"replies": [reply]})
    return str(answer.json()["outcomes"][0]["outcome"])


@pytest.mark.parametrize(("leak", "kept"), LEAKS, ids=["user", "signature", "field"])
async def test_over_the_bus_it_is_neither_stored_nor_shown(
    tmp_path: Path, leak: Any, kept: Any
) -> None:
    async with live(tmp_path, services=[Leaking(leak)]) as world:
        job_id = await world.accepted()
        answer = await world.client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 20})
        job = answer.json()
        assert job["state"] == "SUCCEEDED"
        assert job["final_output"] == {**kept, "credentials_removed": True}
        assert SECRET not in await shown(world, job_id)
    assert SECRET.encode() not in stored(tmp_path)
