"""The HTTP surface over the real engine: workers that speak only HTTP, duplicates at once, bad commands."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.app.building import build
from lucius.app.settings import load_settings

ENVELOPE: dict[str, Any] = {
    "tenant_id": "tenant_a",
    "request_type": "OCR->EMBEDDING",
    "input_ref": {"uri": "s3://bucket/in.pdf"},
    "output_ref": {"uri": "s3://bucket/out.json"},
    "payload": {},
    "schema_version": "v1",
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = load_settings(
        {"LUCIUS_DATA_DIR": str(tmp_path), "LUCIUS_PUBLIC_URL": "http://lucius"}
    )
    runtime = await build(settings)
    async with runtime.running():
        transport = httpx.ASGITransport(app=runtime.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://lucius") as client:
            yield client


async def pulled(client: httpx.AsyncClient, service: str) -> dict[str, Any]:
    body = {"max": 1, "wait_seconds": 5}
    answer = await client.post(f"/v1/services/{service}/directives:pull", json=body)
    directives: list[dict[str, Any]] = answer.json()["directives"]
    return directives[0]


def reply_to(directive: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        name: directive[name] for name in ("jobId", "stepId", "attempt_no", "lease_id")
    } | fields


async def test_a_worker_that_speaks_only_http_runs_a_job(client: httpx.AsyncClient) -> None:
    await client.post("/v1/services/ocr/directives:pull", json={})
    await client.post("/v1/services/embedding/directives:pull", json={})
    job_id = (await client.post("/v1/orchestrate", json=ENVELOPE)).json()["jobId"]
    for service in ("ocr", "embedding"):
        directive = await pulled(client, service)
        headers = {"authorization": f"Bearer {directive['callback_token']}"}
        urls = directive["callback_urls"]
        answer = await client.post(urls["ack"], json=reply_to(directive), headers=headers)
        assert answer.json() == {"outcome": "applied"}
        beat = await client.post(urls["heartbeat"], json=reply_to(directive), headers=headers)
        assert beat.json()["cancel_requested"] is False
        result = reply_to(directive, status="SUCCEEDED", output_ref=f"s3://b/{service}")
        answer = await client.post(urls["result"], json=result, headers=headers)
        assert answer.json() == {"outcome": "applied"}
    job = (await client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 5})).json()
    assert (job["state"], job["final_output"]) == ("SUCCEEDED", "s3://b/embedding")


async def test_a_hundred_duplicates_at_once_make_one_job(client: httpx.AsyncClient) -> None:
    tries = (client.post("/v1/orchestrate", json=ENVELOPE) for _ in range(100))
    answers = await asyncio.gather(*tries)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    assert [answer.json()["duplicate"] for answer in answers].count(False) == 1
    assert len((await client.get("/v1/jobs")).json()["jobs"]) == 1


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"tenant_id": 7}, "INVALID_ENVELOPE", "/tenant_id"),
        ({"tenant_id": None}, "INVALID_ENVELOPE", "/tenant_id"),
        ({"schema_version": "v9"}, "UNSUPPORTED_SCHEMA_VERSION", "/schema_version"),
        ({"request_type": "X"}, "UNKNOWN_REQUEST_TYPE", "/request_type"),
        ({"request_type": "SIS"}, "INVALID_PAYLOAD", "/payload/prompt_set"),
        ({"mode": "FAST"}, "INVALID_ENVELOPE", "/mode"),
        ({"mode": "BURST"}, "DOC_ID_REQUIRED", "/doc_id"),
        ({"input_ref": "ftp://x/y"}, "REFERENCE_NOT_ALLOWED", "/input_ref"),
        ({"input_ref": "https://u:p@x/y"}, "REFERENCE_HAS_CREDENTIALS", "/input_ref"),
        ({"payload": {"password": "x"}}, "PAYLOAD_HAS_CREDENTIALS", "/payload/password"),
        ({"payload": {"text": "x" * 200_000}}, "PAYLOAD_TOO_LARGE", "/payload"),
    ],
)
async def test_a_bad_command_names_its_field_and_creates_nothing(
    client: httpx.AsyncClient, changes: dict[str, Any], code: str, pointer: str
) -> None:
    answer = await client.post("/v1/orchestrate", json={**ENVELOPE, **changes})
    assert answer.json()["code"] == code
    assert answer.json()["status"] == answer.status_code
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert (await client.get("/v1/jobs")).json()["jobs"] == []


async def test_the_same_key_with_another_body_is_a_conflict(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "k"}
    await client.post("/v1/orchestrate", json=ENVELOPE, headers=headers)
    other = {**ENVELOPE, "payload": {"language": "de"}}
    answer = await client.post("/v1/orchestrate", json=other, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_lists_page_over_the_real_ledger(client: httpx.AsyncClient) -> None:
    made = {
        (
            await client.post("/v1/orchestrate", json={**ENVELOPE, "doc_id": str(n)}, headers=key)
        ).json()["jobId"]
        for n, key in ((n, {"idempotency-key": str(n)}) for n in range(5))
    }
    first = (await client.get("/v1/jobs?limit=3")).json()
    rest = (
        await client.get("/v1/jobs", params={"limit": 3, "cursor": first["next_cursor"]})
    ).json()
    assert {job["jobId"] for job in first["jobs"] + rest["jobs"]} == made
    assert rest["next_cursor"] is None


async def test_a_worker_gets_the_payload_of_its_one_step_whole(client: httpx.AsyncClient) -> None:
    payload = {"steps": {"pages": 3}, "language": "en"}
    submitted = await client.post(
        "/v1/orchestrate", json={**ENVELOPE, "request_type": "OCR", "payload": payload}
    )
    assert submitted.status_code == 202
    assert (await pulled(client, "ocr"))["payload"] == payload
