"""Redrive: once for each failed job, from the failed step on, with the payload that is wanted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.live import Live, live

TWO_STEPS = {"request_type": "OCR->EMBEDDING"}


@pytest.fixture
async def lucius(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path) as lucius:
        yield lucius


async def test_a_corrected_payload_reaches_the_failed_step_alone(lucius: Live) -> None:
    payload = {"steps": {"embedding": {"chunk_size": 64}}}
    old = await lucius.accepted(**TWO_STEPS, payload=payload)
    await lucius.work(service="ocr")
    await lucius.work("FAILED_FINAL", service="embedding")
    corrected = {"steps": {"embedding": {"chunk_size": 128}}}
    answer = await lucius.order(old, "redrive", payload=corrected)
    assert answer.status_code == 202
    new = answer.json()["jobId"]
    (directive,) = await lucius.pull("embedding")
    assert (directive["jobId"], directive["payload"]) == (new, {"chunk_size": 128})
    assert directive["previous"] == {"ocr": {"uri": "s3://b/ocr"}}
    await lucius.answer(directive)
    job = await lucius.job(new)
    assert (job["state"], job["redrive_of"]) == ("SUCCEEDED", old)
    assert await lucius.linked(old) == new
    assert await lucius.pull("ocr", wait=0) == []


async def test_a_payload_that_the_step_does_not_take_creates_nothing(lucius: Live) -> None:
    old = await lucius.failed("k")
    answer = await lucius.order(old, "redrive", payload={"pages": 0})
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_PAYLOAD")
    assert answer.json()["errors"][0]["pointer"] == "/payload/pages"
    assert await lucius.dlq() == [old]


async def test_repeating_a_redrive_finds_the_same_job(lucius: Live) -> None:
    old = await lucius.failed("k")
    first = await lucius.order(old, "redrive", payload={"pages": 2})
    new = first.json()["jobId"]
    for body in ({"payload": {"pages": 2}}, {}):
        again = await lucius.order(old, "redrive", **body)
        assert (again.status_code, again.json()["jobId"]) == (200, new)
        assert again.json()["duplicate"] is True


async def test_another_payload_for_a_job_that_was_redriven_is_a_conflict(lucius: Live) -> None:
    old = await lucius.failed("k")
    new = (await lucius.order(old, "redrive")).json()["jobId"]
    answer = await lucius.order(old, "redrive", payload={"pages": 3})
    assert (answer.status_code, answer.json()["code"]) == (409, "ALREADY_REDRIVEN")
    assert new in answer.json()["detail"]
    assert len((await lucius.client.get("/v1/jobs")).json()["jobs"]) == 2


async def test_a_redrive_that_fails_is_redriven_in_its_turn(lucius: Live) -> None:
    first = await lucius.failed("k")
    second = (await lucius.order(first, "redrive")).json()["jobId"]
    assert await lucius.work("FAILED_FINAL") == second
    assert await lucius.linked(first) == second
    assert await lucius.dlq() == [second]
    third = (await lucius.order(second, "redrive", payload={"pages": 5})).json()["jobId"]
    (directive,) = await lucius.pull()
    assert (directive["jobId"], directive["payload"]) == (third, {"pages": 5})
    assert directive["effect_key"].startswith(f"{first}:"), "one effect for the whole chain"
    await lucius.answer(directive)
    assert (await lucius.job(third))["state"] == "SUCCEEDED"
    assert await lucius.linked(second) == third
    assert await lucius.dlq() == []


async def test_the_dlq_shows_a_job_until_it_is_redriven_or_dismissed(lucius: Live) -> None:
    redriven, dismissed, left = [await lucius.failed(key) for key in ("a", "b", "c")]
    assert await lucius.dlq() == [left, dismissed, redriven]
    await lucius.order(redriven, "redrive")
    await lucius.linked(redriven)
    assert (await lucius.post(f"/v1/admin/dlq/{dismissed}:dismiss")).status_code == 200
    assert await lucius.dlq() == [left]
    assert (await lucius.order(dismissed, "redrive")).status_code == 202, "on second thoughts"


async def test_a_cancelled_job_is_redriven_too(lucius: Live) -> None:
    old = await lucius.accepted()
    await lucius.order(old, "cancel", immediate=True)
    answer = await lucius.order(old, "redrive")
    assert answer.status_code == 202
    directives = await lucius.pull(limit=5)
    assert answer.json()["jobId"] in [directive["jobId"] for directive in directives]
