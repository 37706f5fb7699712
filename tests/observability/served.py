"""A real runtime over HTTP, without a socket, and what its spans say."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.sdk.trace import ReadableSpan

from lucius.app.building import build
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.platform import Service

ENVELOPE: dict[str, Any] = {
    "tenant_id": "tenant_a",
    "request_type": "OCR",
    "input_ref": {"uri": "s3://bucket/in.pdf"},
    "output_ref": {"uri": "s3://bucket/out.json"},
    "payload": {},
    "schema_version": "v1",
}


@asynccontextmanager
async def serving(
    data: Path, services: Sequence[Service] = (), **settings: str
) -> AsyncIterator[tuple[Runtime, httpx.AsyncClient]]:
    given = {
        "LUCIUS_DATA_DIR": str(data),
        "LUCIUS_PUBLIC_URL": "http://lucius",
        "LUCIUS_STORAGE_BACKEND": "memory",
    }
    runtime = await build(load_settings({**given, **settings}), services)
    async with runtime.running():
        transport = httpx.ASGITransport(app=runtime.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://lucius") as client:
            yield runtime, client


async def submitted(client: httpx.AsyncClient, **more: Any) -> str:
    headers = more.pop("headers", None)
    answer = await client.post("/v1/orchestrate", json={**ENVELOPE, **more}, headers=headers)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


async def ended(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 20})
    job: dict[str, Any] = answer.json()
    assert job["state"] in ("SUCCEEDED", "FAILED_FINAL", "CANCELLED"), job
    return job


def span_id(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.span_id:016x}"


def trace_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}"


def parent_of(span: ReadableSpan) -> str | None:
    return f"{span.parent.span_id:016x}" if span.parent is not None else None


def called(span: ReadableSpan) -> str:
    """What is done to which message; else the name of the span. Names of spans have topics instead."""
    about = span.attributes or {}
    kind = about.get("lucius.message_type")
    operation = about.get("messaging.operation.name")
    return span.name if kind is None else f"{operation!s} {kind!s}"


def way_up(spans: Sequence[ReadableSpan], name: str) -> list[str]:
    """What is done, from a span up to its root, and last the id of a parent that is elsewhere."""
    by_id = {span_id(span): span for span in spans}
    span = next(span for span in spans if called(span) == name)
    names = [called(span)]
    while (above := parent_of(span)) is not None:
        if above not in by_id:
            return [*names, above]
        span = by_id[above]
        names.append(called(span))
    return names
