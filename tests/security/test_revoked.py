"""Whoever loses its key or token while it waits is sent away, and nothing is handed out after that."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.app.access import key_file
from lucius.core.inputs import CancelRequested
from lucius.http.access import JwtAccess, JwtPolicy, KeyAccess
from lucius.http.context import ApiContext, Caller, Role
from lucius.http.keys import KeyFile
from lucius.http.limits import RateLimit
from lucius.http.streams import Feeds
from lucius.ports.keys import ApiKey
from tests.api.live import Live, live
from tests.api.test_pulling import Workers
from tests.api.test_streams import everyone_waits
from tests.api.world import ENVELOPE, World, accepted, client_of, context_of
from tests.cli.up import up
from tests.security.issuer import AUDIENCE, ISSUER, Issuer
from tests.virtual import VirtualLoop, run_virtually

NOW = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)
EVERYTHING = tuple(Role)


@dataclass
class Keys:
    """A file of keys that tests revoke and let expire."""

    path: Path
    now: datetime = NOW

    def __post_init__(self) -> None:
        self.file = KeyFile(self.path, lambda: self.now)
        self.record, self.key = self.file.create("ci", EVERYTHING, None, NOW + timedelta(days=1))

    def revoke(self) -> None:
        KeyFile(self.path).revoke(self.record.key_id)

    def expire(self) -> None:
        self.now += timedelta(days=1)

    def open_to_all(self) -> None:
        self.path.chmod(0o644)

    def delete(self) -> None:
        self.path.unlink()


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys.json")


def context(world: World, keys: Keys) -> ApiContext:
    return context_of(world, authenticate=KeyAccess(keys.file))


LOSSES = [Keys.revoke, Keys.expire, Keys.open_to_all, Keys.delete]
lost = pytest.mark.parametrize("lose", LOSSES, ids=lambda loss: loss.__name__)
Lose = Callable[[Keys], None]


# -- streams and long polls ----------------------------------------------------------------------


@lost
async def test_a_stream_ends_with_the_key(world: World, keys: Keys, lose: Lose) -> None:
    api = context(world, keys)
    async with client_of(api) as client:
        client.headers["x-api-key"] = keys.key
        job_id = await accepted(client)
        reading = asyncio.create_task(client.get(f"/v1/jobs/{job_id}/events?stream=true"))
        await everyone_waits()
        lose(keys)
        api.watch.look()
        answer = await reading
        assert answer.status_code == 200
        assert b"event: end" not in answer.content


async def test_nothing_is_streamed_after_it_even_if_nobody_has_looked(
    world: World, keys: Keys
) -> None:
    api = context(world, keys)
    async with client_of(api) as client:
        client.headers["x-api-key"] = keys.key
        job_id = await accepted(client)
        seen = world.jobs[job_id].seq
        path = f"/v1/jobs/{job_id}/events?stream=true&after={seen}"
        reading = asyncio.create_task(client.get(path))
        await everyone_waits()
        keys.revoke()
        await world.apply(job_id, CancelRequested(immediate=True))
        assert (await reading).content == b""


async def test_a_stream_ends_in_the_middle_of_what_it_replays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lucius.http.streams.PORTION", 1)
    job_id = (await world.submit(ENVELOPE)).job_id
    await world.out(job_id)
    stands = True
    caller = Caller("ci", frozenset(Role), stands=lambda: stands)
    stream = Feeds(context_of(world)).stream(world.jobs[job_id], 0, caller)
    assert (await anext(stream)).startswith(b"id: 1\n")
    assert world.jobs[job_id].seq > 1, "there is more to come"
    stands = False
    assert [chunk async for chunk in stream] == []


@lost
async def test_a_long_poll_ends_with_the_key(world: World, keys: Keys, lose: Lose) -> None:
    api = context(world, keys)
    async with client_of(api) as client:
        client.headers["x-api-key"] = keys.key
        job_id = await accepted(client)
        waiting = asyncio.create_task(client.get(f"/v1/jobs/{job_id}?wait_seconds=60"))
        await everyone_waits()
        lose(keys)
        api.watch.look()
        answer = await waiting
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
        assert "revoked" in answer.json()["detail"]


async def test_a_long_poll_shows_nothing_of_what_came_after(world: World, keys: Keys) -> None:
    async with client_of(context(world, keys)) as client:
        client.headers["x-api-key"] = keys.key
        job_id = await accepted(client)
        waiting = asyncio.create_task(client.get(f"/v1/jobs/{job_id}?wait_seconds=60"))
        await everyone_waits()
        keys.revoke()
        await world.apply(job_id, CancelRequested(immediate=True))
        assert (await waiting).status_code == 401


async def test_a_key_that_is_still_good_waits_on(world: World, keys: Keys) -> None:
    api = context(world, keys)
    async with client_of(api) as client:
        client.headers["x-api-key"] = keys.key
        job_id = await accepted(client)
        waiting = asyncio.create_task(client.get(f"/v1/jobs/{job_id}?wait_seconds=60"))
        await everyone_waits()
        KeyFile(keys.path).create("another", EVERYTHING, None)
        api.watch.look()
        await world.apply(job_id, CancelRequested(immediate=True))
        assert (await waiting).json()["state"] == "CANCELLED"


async def test_a_token_that_expires_ends_the_wait(world: World, issuer: Issuer) -> None:
    now = time.time()
    policy = JwtPolicy(ISSUER, AUDIENCE, issuer.url, leeway_seconds=5)
    api = context_of(world, authenticate=JwtAccess(policy, now=lambda: now))
    token = issuer.token(exp=int(now) + 600)
    async with client_of(api) as client:
        client.headers["authorization"] = f"Bearer {token}"
        job_id = await accepted(client)
        waiting = asyncio.create_task(client.get(f"/v1/jobs/{job_id}?wait_seconds=60"))
        await everyone_waits()
        now += 604
        api.watch.look()
        await everyone_waits()
        assert not waiting.done()
        now += 2
        api.watch.look()
        assert (await waiting).status_code == 401


# -- pulls ---------------------------------------------------------------------------------------


def bound(world: Live) -> ApiKey:
    record, key = key_file(world.runtime.settings).create("worker", EVERYTHING, None)
    world.client.headers["x-api-key"] = key
    return record


async def test_a_pull_that_waits_ends_with_its_key_and_loses_no_directive(tmp_path: Path) -> None:
    async with live(tmp_path, auth="keys") as world:
        keys = key_file(world.runtime.settings)
        worker = bound(world)
        path = "/v1/services/ocr/directives:pull"
        waiting = asyncio.create_task(world.post(path, {"wait_seconds": 60}))
        await everyone_waits()
        keys.revoke(worker.key_id)
        world.runtime.watch.look()
        assert (await waiting).status_code == 401
        bound(world)
        job_id = await world.accepted()
        (directive,) = await world.pull()
        assert directive["jobId"] == job_id


def test_what_arrives_for_a_worker_whose_key_is_gone_goes_to_another() -> None:
    """Even before anyone has looked: it is asked last of all."""

    async def scene(loop: VirtualLoop) -> None:
        workers, stands = Workers(), True
        pulling = workers.gateway.pull("ocr", 5, 30, None, asyncio.Event().wait, lambda: stands)
        polling = asyncio.create_task(pulling)
        await asyncio.sleep(1)
        stands = False
        await workers.put("a", "b")
        assert list(await polling) == []
        assert sorted(await workers.pull(limit=5, wait=0)) == [0, 1]

    run_virtually(scene)


# -- in a process --------------------------------------------------------------------------------


async def test_lucius_up_looks_by_itself(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / ".lucius/keys.json")
    record, key = keys.create("ci", EVERYTHING, None)
    with up(tmp_path, "--no-services", LUCIUS_AUTH="keys") as server:
        async with httpx.AsyncClient(
            base_url=server.url, headers={"x-api-key": key}, timeout=30
        ) as client:
            body: dict[str, Any] = {
                "tenant_id": "a",
                "request_type": "OCR",
                "input_ref": "s3://b/in.pdf",
                "output_ref": "s3://b/out.txt",
                "payload": {},
                "schema_version": "v1",
            }
            job_id = (await client.post("/v1/orchestrate", json=body)).json()["jobId"]
            path = f"/v1/jobs/{job_id}/events?stream=true"
            async with client.stream("GET", path) as answer:
                chunks = answer.aiter_bytes()
                assert b"id: 1" in await anext(chunks)
                keys.revoke(record.key_id)
                async for _ in chunks:
                    pass  # it ends; otherwise the client's patience does


# -- limits --------------------------------------------------------------------------------------


async def test_two_keys_of_one_name_have_a_limit_each(world: World, keys: Keys) -> None:
    _, other = keys.file.create("ci", EVERYTHING, None)
    rate = RateLimit(2, lambda: 0.0)
    access = KeyAccess(keys.file)
    async with client_of(context_of(world, authenticate=access, rate=rate)) as client:
        answers = [
            (await client.get("/v1/jobs", headers={"x-api-key": key})).status_code
            for key in (keys.key, keys.key, keys.key, other, other, other)
        ]
    assert answers == [200, 200, 429, 200, 200, 429]
