"""The HTTP surface over the real engine, ledger and bus; workers are whoever pulls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lucius.app.building import build
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.platform import Service
from tests.api.conforming import Conforming

BOUND = ("jobId", "stepId", "attempt_no", "lease_id")
ENVELOPE: Mapping[str, Any] = {
    "tenant_id": "tenant_a",
    "request_type": "OCR",
    "input_ref": "s3://bucket/in.pdf",
    "output_ref": "s3://bucket/out.json",
    "payload": {},
    "schema_version": "v1",
}


@dataclass
class Live:
    client: httpx.AsyncClient
    runtime: Runtime

    async def submit(self, key: str | None = None, **changes: Any) -> httpx.Response:
        headers = {"idempotency-key": key} if key else {}
        return await self.client.post(
            "/v1/orchestrate", json={**ENVELOPE, **changes}, headers=headers
        )

    async def accepted(self, key: str | None = None, **changes: Any) -> str:
        answer = await self.submit(key, **changes)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["jobId"])

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        return await self.client.post(path, json=body or {})

    async def order(self, job_id: str, verb: str, **body: Any) -> httpx.Response:
        return await self.post(f"/v1/jobs/{job_id}:{verb}", body)

    async def bulk(self, verb: str, filters: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        answer = await self.post(f"/v1/jobs:{verb}", {"filter": filters, **more})
        assert answer.status_code == 200, answer.text
        counts: dict[str, Any] = answer.json()
        return counts

    async def job(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = (await self.client.get(f"/v1/jobs/{job_id}")).json()
        return job

    async def dlq(self) -> list[str]:
        answer = await self.client.get("/v1/admin/dlq")
        return [job["jobId"] for job in answer.json()["jobs"]]

    async def linked(self, job_id: str) -> str:
        """The job that took over, once the old one says so."""
        while True:
            job = await self.runtime.engine.job(job_id)
            assert job is not None
            if job.redriven_by is not None:
                return job.redriven_by
            await asyncio.sleep(0)  # the link is on its way, by a task of the dispatcher

    # -- workers -----------------------------------------------------------------------------

    async def pull(
        self, service: str = "ocr", limit: int = 1, wait: float = 10
    ) -> list[dict[str, Any]]:
        body = {"max": limit, "wait_seconds": wait}
        answer = await self.post(f"/v1/services/{service}/directives:pull", body)
        assert answer.status_code == 200, answer.text
        directives: list[dict[str, Any]] = answer.json()["directives"]
        return directives

    async def reply(self, kind: str, directive: Mapping[str, Any], **fields: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {directive['callback_token']}"}
        body = {name: directive[name] for name in BOUND} | fields
        return await self.client.post(f"/v1/callbacks/{kind}", json=body, headers=headers)

    async def answer(self, directive: Mapping[str, Any], status: str = "SUCCEEDED") -> None:
        error = {} if status == "SUCCEEDED" else {"error_code": "BROKEN", "error_message": "it is"}
        fields = {"status": status, "output_ref": f"s3://b/{directive['stepId']}", **error}
        replied = await self.reply("result", directive, **fields)
        assert replied.json() == {"outcome": "applied"}, replied.text

    async def work(self, status: str = "SUCCEEDED", service: str = "ocr") -> str:
        """Take one directive and answer it; the job that it was for."""
        (directive,) = await self.pull(service)
        await self.answer(directive, status)
        return str(directive["jobId"])

    async def failed(self, key: str, **changes: Any) -> str:
        """A job that is in the dead-letter view."""
        job_id = await self.accepted(key, **changes)
        await self.work("FAILED_FINAL")
        return job_id


@asynccontextmanager
async def live(
    data: Path,
    *,
    services: Sequence[Service] = (),
    conforming: Conforming | None = None,
    **settings: str,
) -> AsyncIterator[Live]:
    """Settings are given without prefix, in lower case. Every answer is held against its shape."""
    given = {f"LUCIUS_{name.upper()}": value for name, value in settings.items()}
    loaded = load_settings(
        {"LUCIUS_DATA_DIR": str(data), "LUCIUS_PUBLIC_URL": "http://lucius", **given}
    )
    runtime = await build(loaded, services)
    async with runtime.running():
        app = runtime.app()
        transport = httpx.ASGITransport(app=app)
        hooks: dict[str, list[Callable[..., Any]]] = {"response": [conforming or Conforming()]}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://lucius", event_hooks=hooks
        ) as client:
            yield Live(client, runtime)
            await app.state.feeds.close()
