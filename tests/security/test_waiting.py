"""A caller may have so many requests that wait, and no more; others have their own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.http.app import create_app
from lucius.http.limits import WaitLimit
from lucius.http.problems import Problem
from tests.api.world import ENVELOPE, World, client_of, context_of
from tests.cli.up import Changed, running
from tests.security.test_limits import by_name

WAITING = {
    "stream": ("GET", "/v1/jobs/job_0/events?stream=true", None),
    "long poll": ("GET", "/v1/jobs/job_0?wait_seconds=60", None),
    "pull": ("POST", "/v1/services/ocr/directives:pull", {"wait_seconds": 60}),
}


class Gateway:
    """Has nothing to hand out, ever."""

    async def admit(self, *given: object) -> None:
        """Everyone may pull."""

    async def pull(self, *given: Any) -> list[Any]:
        await asyncio.Future()
        return []

    def knows(self, service: str) -> bool:
        return True


class Counted(WaitLimit):
    """Says when so many wait, and when nobody does."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.full, self.empty = asyncio.Event(), asyncio.Event()

    def take(self, who: str) -> Any:
        leave = super().take(who)
        if self._waiting[who] == self._most:
            self.full.set()

        def left() -> None:
            leave()
            if not self._waiting:
                self.empty.set()

        return left


def test_places_are_counted_by_caller_and_given_back() -> None:
    limit = WaitLimit(2)
    leave = limit.take("a")
    limit.take("a")
    with pytest.raises(Problem) as refused:
        limit.take("a")
    assert refused.value.known.code == "TOO_MANY_WAITING"
    limit.take("b")
    leave()
    limit.take("a")


@asynccontextmanager
async def asked(client: httpx.AsyncClient, kind: str, times: int) -> AsyncIterator[None]:
    method, path, body = WAITING[kind]
    headers = {"x-name": "a"}
    tasks = [
        asyncio.create_task(client.request(method, path, json=body, headers=headers))
        for _ in range(times)
    ]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("kind", WAITING)
async def test_one_caller_cannot_take_every_place(world: World, kind: str) -> None:
    waits = Counted(3)
    context = context_of(world, waits=waits, authenticate=by_name, gateway=Gateway())
    await world.submit(ENVELOPE)
    async with client_of(context) as client:
        async with asked(client, kind, 3):
            await waits.full.wait()
            for method, path, body in WAITING.values():
                answer = await client.request(method, path, json=body, headers={"x-name": "a"})
                assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_WAITING")
                assert answer.headers["retry-after"] == "1"
            plain = await client.get("/v1/jobs/job_0", headers={"x-name": "a"})
            assert plain.status_code == 200, "what does not wait needs no place"
            other = {"x-name": "b"}
            path = "/v1/jobs/job_0?wait_seconds=0.01"
            assert (await client.get(path, headers=other)).status_code == 200
        await waits.empty.wait()


async def test_without_authentication_an_address_has_so_many(world: World) -> None:
    waits = Counted(1)
    await world.submit(ENVELOPE)
    async with client_of(context_of(world, waits=waits)) as client, asked(client, "long poll", 1):
        await waits.full.wait()
        assert (await client.get("/v1/jobs/job_0?wait_seconds=1")).status_code == 429


async def test_a_job_that_has_ended_needs_no_place(world: World) -> None:
    await world.submit(ENVELOPE)
    app = create_app(context_of(world, waits=WaitLimit(0)))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://lucius") as client:
        await client.post("/v1/jobs/job_0:cancel", json={"immediate": True})
        assert (await client.get("/v1/jobs/job_0?wait_seconds=1")).status_code == 200


def test_lucius_up_has_the_limit(tmp_path: Path) -> None:
    with running(Changed({"runtime.WAITING": "1"}, tmp_path, "--no-services")) as server:
        envelope = {**ENVELOPE, "request_type": "OCR", "output_ref": "s3://b/o"}
        posted = httpx.post(f"{server.url}/v1/orchestrate", json=envelope)
        events = f"{server.url}{posted.headers['location']}/events"
        stream = {"accept": "text/event-stream"}
        with httpx.stream("GET", events, headers=stream) as first:
            assert first.status_code == 200
            second = httpx.get(events, headers=stream)
            assert (second.status_code, second.json()["code"]) == (429, "TOO_MANY_WAITING")
