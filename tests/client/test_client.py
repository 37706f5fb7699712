"""The client repeats what may be repeated, with the same key, and says what went wrong."""

import asyncio
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from lucius.app.lifecycle import free_port
from lucius.client import (
    ENDED,
    Client,
    ClientError,
    Command,
    JobState,
    ProblemError,
    StepState,
    UnreachableError,
)
from lucius.client.models import EventView, JobView
from lucius.contract.models.base import example_of
from lucius.core.job import TERMINAL_JOB
from tests.api.live import ENVELOPE as LIVE_ENVELOPE
from tests.api.live import live
from tests.api.world import ENVELOPE, World, client_of, context_of
from tests.client.answering import Handler, answering, lost, through


def test_the_client_knows_when_a_job_has_ended() -> None:
    """It imports nothing of the server, so it has a list of its own."""
    assert {state.value for state in TERMINAL_JOB} == ENDED


ACCEPTED = {"jobId": "j", "state": "QUEUED", "duplicate": False}
JOB = example_of(JobView)
EVENT = json.dumps(example_of(EventView))


class Flaky:
    """Fails that often, by a status or by no answer at all, then accepts. It keeps what it saw."""

    def __init__(self, failures: int, status: int | None) -> None:
        self.failures = failures
        self.status = status
        self.keys: list[str | None] = []
        self.bodies: list[bytes] = []

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.keys.append(request.headers.get("idempotency-key"))
        self.bodies.append(await request.read())
        if len(self.bodies) > self.failures:
            return web.json_response(ACCEPTED, status=202)
        if self.status is None:
            return lost(request)
        return web.json_response({}, status=self.status, headers={"retry-after": "0"})


def client_at(url: str, retries: int = 3) -> Client:
    return Client(url, retries=retries, backoff_seconds=0)


@pytest.mark.parametrize("status", [None, 408, 429, 503])
async def test_a_submit_is_repeated_with_the_same_key_and_body(status: int | None) -> None:
    server = Flaky(2, status)
    async with answering(server) as url, client_at(url) as client:
        submitted = await client.submit(ENVELOPE, idempotency_key="k-1")
    assert submitted.jobId == "j"
    assert server.keys == ["k-1"] * 3
    assert len(set(server.bodies)) == 1


@pytest.mark.parametrize("status", [None, 429, 502, 503, 504])
async def test_without_a_key_the_call_makes_one_and_keeps_it(status: int | None) -> None:
    server = Flaky(2, status)
    async with answering(server) as url, client_at(url) as client:
        await client.submit(ENVELOPE)
        await client.submit(ENVELOPE)
    *first, second = server.keys
    assert len(first) == 3
    assert len(set(first)) == 1
    assert len(str(first[0])) >= 32
    assert second not in first


async def test_a_lost_answer_makes_no_second_job_even_if_the_first_has_failed(
    tmp_path: Path,
) -> None:
    """A claim of the body does not hold against a job that failed; the key of the call does."""
    async with live(tmp_path) as lucius:
        inner, losses = through(lucius.client), list[str]()

        async def losing(request: web.BaseRequest) -> web.StreamResponse:
            answer = await inner(request)
            if losses:
                return answer
            losses.append(request.path)
            await lucius.work("FAILED_FINAL")
            return lost(request)

        async with answering(losing) as url, client_at(url) as client:
            submitted = await client.submit(LIVE_ENVELOPE)
            assert submitted.duplicate is True
            assert len((await client.jobs()).jobs) == 1


@pytest.mark.parametrize("status", [None, 502, 503, 504])
async def test_by_body_nothing_is_repeated_that_may_have_been_taken(status: int | None) -> None:
    server = Flaky(9, status)
    async with answering(server) as url, client_at(url) as client:
        with pytest.raises(ClientError):
            await client.submit(ENVELOPE, by_body=True)
    assert server.keys == [None]


async def test_by_body_what_was_refused_for_now_is_repeated() -> None:
    server = Flaky(2, 429)
    async with answering(server) as url, client_at(url) as client:
        assert (await client.submit(ENVELOPE, by_body=True)).jobId == "j"
    assert len(server.bodies) == 3


async def test_by_body_a_server_that_comes_up_late_is_waited_for() -> None:
    """What was never sent may be repeated, whatever it is."""
    port, server = free_port(), Flaky(0, None)
    async with Client(f"http://127.0.0.1:{port}", retries=10_000, backoff_seconds=0.001) as client:
        submitting = asyncio.create_task(client.submit(ENVELOPE, by_body=True))
        await asyncio.wait([submitting], timeout=0.05)
        assert not submitting.done()
        async with answering(server, port):
            assert (await submitting).jobId == "j"
    assert len(server.bodies) == 1


async def test_a_server_that_stays_away_is_unreachable() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with client_at(url, retries=2) as client:
        with pytest.raises(UnreachableError, match=url):
            await client.job("x")


@pytest.mark.parametrize("url", ["127.0.0.1:8700", "ftp://host", "http://", "http://host:x"])
def test_what_is_no_url_is_said_so(url: str) -> None:
    with pytest.raises(ClientError, match="is no address of a server"):
        Client(url)


def always(answer: Mapping[str, object] | str, status: int) -> Handler:
    async def handle(request: web.BaseRequest) -> web.Response:
        if isinstance(answer, str):
            return web.Response(text=answer, status=status)
        return web.json_response(answer, status=status)

    return handle


async def test_what_is_refused_is_not_repeated_and_names_every_bad_field() -> None:
    errors = [{"pointer": "/tenant_id", "detail": "required"}]
    document = {"code": "INVALID_ENVELOPE", "detail": "one field is wrong", "errors": errors}
    async with answering(always(document, 422)) as url, client_at(url) as client:
        with pytest.raises(ProblemError) as caught:
            await client.submit({})
    assert (caught.value.status, caught.value.code) == (422, "INVALID_ENVELOPE")
    assert str(caught.value) == "INVALID_ENVELOPE: one field is wrong\n  /tenant_id: required"


async def test_an_answer_that_is_no_problem_document_is_still_an_error() -> None:
    async with answering(always("teapot", 418)) as url, client_at(url) as client:
        with pytest.raises(ProblemError, match="HTTP_418: teapot"):
            await client.cancel("x")


async def test_another_server_than_lucius_is_said_so() -> None:
    async with answering(always("<html>", 200)) as url, client_at(url) as client:
        with pytest.raises(ClientError, match="it is not LUCIUS"):
            await client.job("x")


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    """Whoever answers in between must not be handed the credentials of another."""
    seen: list[str] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        seen.append(request.path)
        return web.Response(status=307, headers={"location": "/elsewhere"})

    async with answering(handle) as url, Client(url, api_key="k", retries=0) as client:
        with pytest.raises(ProblemError, match="HTTP_307"):
            await client.job("x")
    assert seen == ["/v1/jobs/x"]


async def test_a_broken_stream_is_resumed_where_it_broke() -> None:
    asked: list[str] = []
    parts = {
        1: f"id: 1\nevent: ack\ndata: {EVENT}\n\n",
        3: f": alive\n\nid: 2\ndata: {EVENT[:1]}\ndata: {EVENT[1:]}\n\n",
    }

    async def handle(request: web.BaseRequest) -> web.Response:
        asked.append(request.headers["last-event-id"])
        if len(asked) == 2:
            return lost(request)
        if len(asked) in parts:
            return web.Response(text=parts[len(asked)], content_type="text/event-stream")
        return web.Response(status=204)

    async with answering(handle) as url, client_at(url) as client:
        seen = [event async for event in client.follow("x")]
    assert seen == [EventView.model_validate_json(EVENT)] * 2
    assert [asked[0], asked[-1]] == ["0", "2"]
    assert set(asked[1:-1]) == {"1"}


async def test_the_environment_names_the_server_and_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str | None] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("authorization"))
        return web.json_response(JOB)

    async with answering(handle) as url:
        monkeypatch.setenv("LUCIUS_URL", url)
        monkeypatch.setenv("LUCIUS_API_KEY", "k-1")
        async with Client() as client:
            await client.job("x")
    assert seen == ["Bearer k-1"]


async def test_the_key_may_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LUCIUS_API_KEY", raising=False)
    monkeypatch.setenv("LUCIUS_API_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(ClientError, match=r"cannot be read: .*key: No such file"):
        Client("http://lucius.example")
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ClientError, match="is empty"):
        Client("http://lucius.example")
    (tmp_path / "key").write_text("k-2\n")
    seen: list[str | None] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("authorization"))
        return web.json_response(JOB)

    async with answering(handle) as url, Client(url) as client:
        await client.job("x")
    assert seen == ["Bearer k-2"]


async def test_the_environment_names_a_proxy_and_who_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        asked.append(str(request.url))
        return web.json_response(JOB)

    async with answering(handle) as proxy, answering(handle) as url:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with Client("http://lucius.example") as client:
            await client.job("far")
        async with Client(url) as client:
            await client.job("near")
    assert asked == ["http://lucius.example/v1/jobs/far", f"{url}/v1/jobs/near"]


async def test_an_answer_has_attributes_words_and_moments(tmp_path: Path) -> None:
    command = Command(**{**LIVE_ENVELOPE, "note": "kept"}, doc_id="contract-17")
    async with (
        live(tmp_path) as lucius,
        answering(through(lucius.client)) as url,
        Client(url) as client,
    ):
        running = asyncio.create_task(client.run(command))
        await lucius.work()
        job = await running
        shown = await lucius.job(job.jobId)
    assert job.state is JobState.SUCCEEDED
    assert job.steps[0].state is StepState.SUCCEEDED
    assert job.steps[0].last_error_code is None
    assert job.doc_id == "contract-17"
    assert job.completed_at is not None
    assert job.completed_at.tzinfo is not None
    assert job.created_at <= job.completed_at
    assert job.model_dump(mode="json", exclude_unset=True) == shown


async def test_fields_of_a_newer_server_are_kept() -> None:
    newer = {**JOB, "state": "HIBERNATING", "mood": "calm"}
    async with answering(always(newer, 200)) as url, client_at(url) as client:
        job = await client.job("x")
    assert job.state == "HIBERNATING"
    assert job.model_extra == {"mood": "calm"}


async def test_what_an_older_server_does_not_say_is_named() -> None:
    older = {name: value for name, value in JOB.items() if name != "lane"}
    async with answering(always(older, 200)) as url, client_at(url) as client:
        with pytest.raises(ClientError, match=r"or another version: lane: Field required"):
            await client.job("x")


async def test_filters_may_be_moments_and_switches() -> None:
    seen: list[dict[str, str]] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        seen.append(dict(request.query))
        return web.json_response({"jobs": [], "next_cursor": None})

    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    async with answering(handle) as url, client_at(url) as client:
        await client.jobs(created_from=moment, live=True, state=JobState.PAUSED, limit=3)
        await client.dlq(cursor=None)
    wanted = {"created_from": "2026-01-31T12:00:00+00:00", "live": "true", "state": "PAUSED"}
    assert seen == [{**wanted, "limit": "3"}, {}]


async def test_a_number_that_json_does_not_have_is_never_sent() -> None:
    server = Flaky(0, None)
    async with answering(server) as url, client_at(url) as client:
        with pytest.raises(ValueError, match="not JSON compliant"):
            await client.submit({**ENVELOPE, "payload": {"rate": math.nan}})
        await client.submit({**ENVELOPE, "payload": {"large": 2**70, "none": None}})
    assert [json.loads(body)["payload"] for body in server.bodies] == [
        {"large": 2**70, "none": None}
    ]


async def test_a_job_is_submitted_waited_for_and_read() -> None:
    async with (
        client_of(context_of(World())) as http,
        answering(through(http)) as url,
        Client(url) as client,
    ):
        job_id = (await client.submit(ENVELOPE, by_body=True)).jobId
        assert (await client.submit(ENVELOPE, by_body=True)).duplicate is True
        assert (await client.pause(job_id)).state == "PAUSED"
        assert (await client.resume(job_id)).outcome == "applied"
        await client.cancel(job_id)
        assert (await client.wait(job_id, timeout_seconds=5)).state == "CANCELLED"
        kinds = [event.event_type async for event in client.follow(job_id)]
        assert kinds == ["submitted", "pause", "resume", "cancel"]
        assert len((await client.steps(job_id)).steps) == 2
        assert (await client.executions(job_id)).phase == "FAILED"
        assert (await client.redrive(job_id)).redrive_of == job_id
