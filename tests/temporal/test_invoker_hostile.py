"""The internal API against callers that are wrong, careless or hostile: each is refused, nothing is moved."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.app.health import health_port
from lucius.app.runtime import Runtime
from lucius.http.invoker import MOST_BYTES, invoker_app
from tests.temporal.test_invoker_api import SECRET, attempt, directives, invoking
from tests.temporal.world import Recording, envelope, running, settings_of, submitted

ATTEMPT = "/v1/internal/steps/attempt"
PUBLISH = "/v1/internal/publish"
TIMEOUT = "/v1/internal/steps/timeout"


@asynccontextmanager
async def calling(
    folder: Path,
) -> AsyncIterator[tuple[httpx.AsyncClient, Runtime, Recording, str]]:
    """With the secret. An error that nobody handles would be raised here."""
    async with invoking(folder) as (runtime, bus, _, job_id):
        app = invoker_app(runtime.invoker, SECRET, runtime.health_app().routes)
        headers = {"authorization": f"Bearer {SECRET}"}
        async with httpx.AsyncClient(
            base_url="http://invoker", transport=httpx.ASGITransport(app), headers=headers
        ) as client:
            yield client, runtime, bus, job_id


def said(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        SECRET,
        f"Basic {SECRET}",
        f"Bearer {SECRET}x",
        f"Bearer {SECRET[:-1]}",
    ],
)
@pytest.mark.parametrize("path", [ATTEMPT, PUBLISH, TIMEOUT, "/v1/internal/jobs/x/inputs"])
async def test_every_question_needs_the_whole_secret_as_a_bearer_token(
    authorization: str, path: str
) -> None:
    """Before anything is read: there is no invoker behind this one."""
    transport = httpx.ASGITransport(invoker_app(None, SECRET))  # type: ignore[arg-type]
    async with httpx.AsyncClient(base_url="http://invoker", transport=transport) as client:
        answer = await client.post(path, content=b"{", headers={"authorization": authorization})
        assert said(answer) == (401, "UNAUTHENTICATED")
        assert SECRET not in answer.text


@pytest.mark.parametrize("header", ["origin", "sec-fetch-site"])
@pytest.mark.parametrize("path", [ATTEMPT, PUBLISH, TIMEOUT, "/v1/internal/jobs/x/inputs"])
async def test_no_web_page_may_ask_even_where_no_secret_is_needed(header: str, path: str) -> None:
    """A page can reach loopback, under its own name too; its browser says that it is one."""
    transport = httpx.ASGITransport(invoker_app(None))  # type: ignore[arg-type]
    async with httpx.AsyncClient(base_url="http://invoker", transport=transport) as client:
        answer = await client.post(path, content=b"{", headers={header: "null"})
    assert said(answer) == (403, "CROSS_ORIGIN")


async def test_who_hangs_up_while_asking_leaves_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with health_port(invoker_app(None), "127.0.0.1", 0) as port:  # type: ignore[arg-type]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST {ATTEMPT} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/openapi.json")).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


WRONG: dict[str, tuple[bytes, int, str]] = {
    "not JSON": (b"{", 400, "INVALID_JSON"),
    "half a character": (json.dumps(attempt("\ud800")).encode(), 400, "INVALID_JSON"),
    "a key twice": (b'{"jobId": "a", "jobId": "b"}', 400, "DUPLICATE_KEY"),
    "nested too deep": (b'{"jobId":' + b"[" * 65 + b"]" * 65 + b"}", 400, "NESTING_TOO_DEEP"),
    "nested beyond all bounds": (b"[" * 5000 + b"]" * 5000, 400, "NESTING_TOO_DEEP"),
    "an array": (b"[]", 422, "INVALID_BODY"),
    "nothing": (b"", 400, "INVALID_JSON"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_body_that_is_no_plain_object_is_refused_as_anywhere(
    what: str, tmp_path: Path
) -> None:
    body, *refusal = WRONG[what]
    async with calling(tmp_path) as (client, *_):
        for path in (ATTEMPT, PUBLISH, TIMEOUT, "/v1/internal/jobs/x/inputs"):
            answer = await client.post(path, content=body)
            assert said(answer) == tuple(refusal)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (attempt("j", "1"), "/attempt_no"),  # type: ignore[arg-type]
        (attempt("j", True), "/attempt_no"),
        (attempt("j", 0), "/attempt_no"),
        (attempt("j", 10**30), "/attempt_no"),
        (attempt("j", 1, "a\nb"), "/lease_id"),
        (attempt("j", 1, "x" * 257), "/lease_id"),
    ],
)
async def test_a_field_that_does_not_fit_is_named_and_not_repeated(
    body: dict[str, Any], pointer: str, tmp_path: Path
) -> None:
    async with calling(tmp_path) as (client, *_):
        answer = await client.post(ATTEMPT, json=body)
        assert said(answer) == (422, "INVALID_BODY")
        assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]
        assert "pydantic" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"input": "AckReceived", "step_id": ["a"], "attempt_no": 1, "lease_id": {}},
        {"input": "AckReceived", "step_id": "alpha", "attempt_no": True, "lease_id": "l"},
        {"input": "CancelRequested", "immediate": "no"},
        {"input": "CancelRequested", "sneaky": 1},
        {"input": "Redriven", "job_id": 5},
        {"input": "Ticked"},
        {"input": "PublishConfirmed", "step_id": "alpha", "attempt_no": 1, "lease_id": "l"},
        {
            "input": "ResultReceived",
            "step_id": "alpha",
            "attempt_no": 1,
            "lease_id": "l",
            "status": "FAILED_FINAL",
            "fault": ["CODE", 5],
        },
    ],
)
async def test_an_input_of_the_wrong_types_is_refused_and_moves_nothing(
    body: dict[str, Any], tmp_path: Path
) -> None:
    async with calling(tmp_path) as (client, runtime, _, job_id):
        before = await runtime.engine.job(job_id)
        answer = await client.post(f"/v1/internal/jobs/{job_id}/inputs", json=body)
        assert said(answer) == (422, "INVALID_BODY")
        assert await runtime.engine.job(job_id) == before


async def test_a_body_that_is_too_large_is_refused_before_it_is_whole(tmp_path: Path) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 20 * MOST_BYTES:
            sent += 65_536
            yield b" " * 65_536

    async with calling(tmp_path) as (client, *_):
        answer = await client.post(ATTEMPT, content=endless())
        assert said(answer) == (413, "BODY_TOO_LARGE")
        assert str(MOST_BYTES) in answer.json()["detail"]
        assert sent < 2 * MOST_BYTES


async def test_nothing_is_done_for_a_tenant_who_does_not_own_the_job(tmp_path: Path) -> None:
    async with calling(tmp_path) as (client, runtime, bus, job_id):
        before = await runtime.engine.job(job_id)
        wrong = {**attempt(job_id, publish=True), "tenant_id": "somebody"}
        for path, body in (
            (ATTEMPT, wrong),
            (PUBLISH, {"directive": wrong}),
            (TIMEOUT, {"jobId": job_id, "tenant_id": "somebody"}),
        ):
            assert said(await client.post(path, json=body)) == (404, "JOB_NOT_FOUND")
        assert await runtime.engine.job(job_id) == before
        assert directives(bus) == []


async def test_jobs_of_the_other_engine_are_not_there(tmp_path: Path) -> None:
    """The outbox engine publishes and times them: a question about one is not answered, and does nothing."""
    async with running(settings_of(tmp_path, None), ()) as (runtime, bus):
        job_id = await submitted(runtime, envelope())
        before = await runtime.engine.job(job_id)
        assert before is not None
        lease = before.steps[0].executions[-1].exec_id
        transport = httpx.ASGITransport(invoker_app(runtime.invoker))
        async with httpx.AsyncClient(base_url="http://invoker", transport=transport) as client:
            for path, body in (
                (ATTEMPT, attempt(job_id, 2, publish=True)),
                (PUBLISH, {"directive": attempt(job_id, 1, lease)}),
                (TIMEOUT, {"jobId": job_id}),
                (f"/v1/internal/jobs/{job_id}/inputs", {"input": "CancelRequested"}),
            ):
                assert said(await client.post(path, json=body)) == (404, "JOB_NOT_FOUND")
        after = await runtime.engine.job(job_id)
        assert after is not None
        assert after.state is not before.state.CANCELLED
        assert set(directives(bus)) <= {lease}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_other_methods_and_paths_are_problems_too(method: str, tmp_path: Path) -> None:
    async with calling(tmp_path) as (client, *_):
        assert said(await client.request(method, ATTEMPT)) == (405, "METHOD_NOT_ALLOWED")
        missing = await client.request(method, f"/v1/internal/{'x' * 500}")
        assert said(missing) == (404, "NOT_FOUND")
        assert len(missing.text) < 500
        assert (await client.get("/healthz")).status_code == 200


async def test_many_who_ask_for_the_same_attempt_at_once_begin_one(tmp_path: Path) -> None:
    """Each proposes a lease of its own. One is recorded and published; the others are told of it."""
    async with calling(tmp_path) as (client, runtime, bus, job_id):
        asked = [attempt(job_id, 1, f"lease-{n}", publish=True) for n in range(20)]
        answers = await asyncio.gather(*(client.post(ATTEMPT, json=each) for each in asked))
        outcomes = sorted(answer.json()["outcome"] for answer in answers)
        assert outcomes == ["applied"] + ["superseded"] * 19
        job = await runtime.engine.job(job_id)
        assert job is not None
        assert directives(bus) == [execution.exec_id for execution in job.steps[0].executions]


async def test_neither_the_secret_nor_a_callback_token_is_logged_or_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with calling(tmp_path) as (client, runtime, bus, job_id):
            async with health_port(invoker_app(runtime.invoker, SECRET), "127.0.0.1", 0) as port:
                url, headers = f"http://127.0.0.1:{port}{ATTEMPT}", dict(client.headers)
                async with httpx.AsyncClient(headers=headers) as over_http:
                    answer = await over_http.post(url, json=attempt(job_id, publish=True))
                    refused = await over_http.post(url, json={"lease_id": SECRET})
            token = str(bus.published[0][1].body["callback_token"])
    assert answer.json()["outcome"] == "applied"
    for text in (answer.text, refused.text, caplog.text):
        assert SECRET not in text
        assert token not in text
