"""The HTTP surface over the real engine: workers that speak only HTTP, duplicates at once, bad commands."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.bootstrap.building import build
from lucius.settings import load_settings

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


async def test_a_worker_gets_the_payload_of_its_one_step_whole(client: httpx.AsyncClient) -> None:
    payload = {"steps": {"pages": 3}, "language": "en"}
    submitted = await client.post(
        "/v1/orchestrate", json={**ENVELOPE, "request_type": "OCR", "payload": payload}
    )
    assert submitted.status_code == 202
    assert (await pulled(client, "ocr"))["payload"] == payload
