"""The client repeats what may be repeated, with the same key, and says what went wrong."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from lucius.client import Client, ClientError, ProblemError, UnreachableError
from tests.api.live import ENVELOPE as LIVE_ENVELOPE
from tests.api.live import live
from tests.api.world import ENVELOPE, World, client_of, context_of

Handler = Callable[[httpx.Request], httpx.Response]


def client_with(handler: Handler, retries: int = 3) -> Client:
    transport = httpx.MockTransport(handler)
    return Client("http://lucius", transport=transport, retries=retries, backoff_seconds=0)


def flaky(failures: int, seen: list[httpx.Request], answer: httpx.Response | None) -> Handler:
    """Fails that often, by an answer or by none, then succeeds."""

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) <= failures:
            if answer is None:
                raise httpx.ConnectError("refused", request=request)
            return answer
        return httpx.Response(202, json={"jobId": "j", "state": "QUEUED", "duplicate": False})

    return handle


@pytest.mark.parametrize("status", [None, 408, 429, 503])
async def test_a_submit_is_repeated_with_the_same_key_and_body(status: int | None) -> None:
    seen: list[httpx.Request] = []
    answer = httpx.Response(status, headers={"retry-after": "0"}) if status else None
    async with client_with(flaky(2, seen, answer)) as client:
        submitted = await client.submit(ENVELOPE, idempotency_key="k-1")
    assert submitted["jobId"] == "j"
    assert [request.headers["idempotency-key"] for request in seen] == ["k-1"] * 3
    assert len({request.content for request in seen}) == 1


@pytest.mark.parametrize("status", [None, 429, 502, 503, 504])
async def test_without_a_key_the_call_makes_one_and_keeps_it(status: int | None) -> None:
    seen: list[httpx.Request] = []
    answer = httpx.Response(status, headers={"retry-after": "0"}) if status else None
    async with client_with(flaky(2, seen, answer)) as client:
        await client.submit(ENVELOPE)
        await client.submit(ENVELOPE)
    first, second = ([r.headers["idempotency-key"] for r in seen[:3]], seen[3])
    assert len(set(first)) == 1
    assert len(first[0]) >= 32
    assert second.headers["idempotency-key"] != first[0]


async def test_a_lost_answer_makes_no_second_job_even_if_the_first_has_failed(
    tmp_path: Path,
) -> None:
    """A claim of the body does not hold against a job that failed; the key of the call does."""
    async with live(tmp_path) as lucius:
        inner = lucius.client._transport

        async def losing(request: httpx.Request) -> httpx.Response:
            answer = await inner.handle_async_request(request)
            await answer.aread()
            if not lost:
                lost.append(request)
                await lucius.work("FAILED_FINAL")
                raise httpx.ReadError("the answer is lost")
            return answer

        lost: list[httpx.Request] = []
        transport = httpx.MockTransport(losing)
        async with Client("http://lucius", backoff_seconds=0, transport=transport) as client:
            submitted = await client.submit(LIVE_ENVELOPE)
            assert submitted["duplicate"] is True
            assert len((await client.jobs())["jobs"]) == 1


@pytest.mark.parametrize("status", [None, 502, 503, 504])
async def test_by_body_nothing_is_repeated_that_may_have_been_taken(status: int | None) -> None:
    seen: list[httpx.Request] = []

    def lose(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if status is None:
            raise httpx.ReadError("the answer is lost", request=request)
        return httpx.Response(status, json={})

    async with client_with(lose) as client:
        with pytest.raises(ClientError):
            await client.submit(ENVELOPE, by_body=True)
    assert len(seen) == 1
    assert "idempotency-key" not in seen[0].headers


@pytest.mark.parametrize("status", [None, 429])
async def test_by_body_what_was_never_taken_is_repeated(status: int | None) -> None:
    seen: list[httpx.Request] = []
    answer = httpx.Response(status, headers={"retry-after": "0"}) if status else None
    async with client_with(flaky(2, seen, answer)) as client:
        assert (await client.submit(ENVELOPE, by_body=True))["jobId"] == "j"
    assert len(seen) == 3


async def test_a_server_that_stays_away_is_unreachable() -> None:
    seen: list[httpx.Request] = []
    async with client_with(flaky(99, seen, None), retries=2) as client:
        with pytest.raises(UnreachableError, match="http://lucius"):
            await client.job("x")
    assert len(seen) == 3


async def test_what_is_refused_is_not_repeated() -> None:
    seen: list[httpx.Request] = []
    document = {"code": "JOB_NOT_FOUND", "detail": "no", "errors": []}
    async with client_with(flaky(9, seen, httpx.Response(404, json=document))) as client:
        with pytest.raises(ProblemError) as caught:
            await client.job("x")
    assert (caught.value.status, caught.value.code, len(seen)) == (404, "JOB_NOT_FOUND", 1)


async def test_an_answer_that_is_no_problem_document_is_still_an_error() -> None:
    handler = flaky(9, [], httpx.Response(418, text="teapot"))
    async with client_with(handler) as client:
        with pytest.raises(ProblemError, match="HTTP_418: teapot"):
            await client.cancel("x")


async def test_a_broken_stream_is_resumed_where_it_broke() -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["last-event-id"])
        if len(asked) == 1:
            return httpx.Response(200, content=b'id: 1\nevent: ack\ndata: {"seq": 1}\n\n')
        if len(asked) == 2:
            raise httpx.ReadError("reset", request=request)
        if len(asked) == 3:
            return httpx.Response(200, content=b': alive\n\nid: 2\ndata: {"seq": 2}\n\n')
        return httpx.Response(204)

    async with client_with(handle) as client:
        seen = [event["seq"] async for event in client.follow("x")]
    assert (seen, asked) == ([1, 2], ["0", "1", "1", "2"])


async def test_a_job_is_submitted_waited_for_and_read(world: World) -> None:
    async with client_of(context_of(world)) as http:
        transport = http._transport
        async with Client("http://lucius", transport=transport) as client:
            job_id = (await client.submit(ENVELOPE, by_body=True))["jobId"]
            assert (await client.submit(ENVELOPE, by_body=True))["duplicate"] is True
            assert (await client.pause(job_id))["state"] == "PAUSED"
            assert (await client.resume(job_id)).get("outcome") == "applied"
            await client.cancel(job_id)
            assert (await client.wait(job_id, timeout_seconds=5))["state"] == "CANCELLED"
            kinds = [event["event_type"] async for event in client.follow(job_id)]
            assert kinds == ["submitted", "pause", "resume", "cancel"]
            assert len((await client.steps(job_id))["steps"]) == 2
            assert (await client.executions(job_id))["phase"] == "FAILED"
            assert (await client.redrive(job_id))["redrive_of"] == job_id


@pytest.fixture
def world() -> World:
    return World()
