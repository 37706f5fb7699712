"""The pull gateway: nothing is lost on a worker that hangs up or vanishes, and workers share."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.core.errors import RequestError
from lucius.core.routing import TOPOLOGIES, directive_topics
from lucius.engine.gateway import Backlog
from lucius.ports.bus import BoundTenants, Message
from tests.api.live import BOUND, Live, live
from tests.bus_looks import backlog
from tests.virtual import VirtualLoop, run_virtually
from tests.wiring import NoBacklog, gateway_on


@pytest.fixture
async def lucius(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path) as lucius:
        yield lucius


async def never() -> None:
    await asyncio.Event().wait()


class Workers:
    """A gateway on a bus whose receives are counted, in virtual time."""

    def __init__(self, backlog: Backlog | None = None) -> None:
        self.bus = CountingBus()
        self.gateway = gateway_on(self.bus, FileConfig(), backlog)

    async def put(self, *tenants: str) -> None:
        await self.gateway.prepare()
        topics = directive_topics("shared")
        for number, tenant_id in enumerate(tenants):
            properties = {"step_type": "OCR", "tenant_id": tenant_id}
            message = Message(f"m{number}", {"n": number}, properties)
            await self.bus.publish(topics[number % len(topics)], [message])

    async def pull(
        self,
        limit: int = 1,
        wait: float = 30,
        tenants: frozenset[str] | None = None,
        gone: Callable[[], Awaitable[object]] = never,
    ) -> list[Any]:
        found = await self.gateway.pull("ocr", limit, wait, tenants, gone)
        return [body["n"] for body in found]


class CountingBus(MemoryBus):
    receives = 0

    async def receive(self, *args: Any, **named: Any) -> Any:
        self.receives += 1
        return await super().receive(*args, **named)


# -- over HTTP -------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_both_modes_are_pulled_in_every_topology(tmp_path: Path, topology: str) -> None:
    async with live(tmp_path, lane_topology=topology) as lucius:
        burst = await lucius.accepted("burst", mode="BURST", doc_id="d1")
        default = await lucius.accepted("default")
        for _ in (burst, default):
            await lucius.work()
        for job_id, mode in ((burst, "BURST"), (default, "DEFAULT")):
            job = await lucius.job(job_id)
            assert (job["state"], job["mode"]) == ("SUCCEEDED", mode)


async def test_an_unknown_service_is_a_problem(lucius: Live) -> None:
    answer = await lucius.post("/v1/services/nobody/directives:pull")
    assert (answer.status_code, answer.json()["code"]) == (404, "SERVICE_NOT_FOUND")


@pytest.mark.parametrize("replies", [[], [{}], [{"jobId": "j", "callback_token": "t"}]], ids=str)
async def test_an_unknown_service_has_no_replies_either(lucius: Live, replies: list[Any]) -> None:
    answer = await lucius.post("/v1/services/nobody/replies", {"replies": replies})
    assert (answer.status_code, answer.json()["code"]) == (404, "SERVICE_NOT_FOUND")
    known = await lucius.post("/v1/services/ocr/replies", {"replies": replies})
    assert known.status_code == 200


async def test_a_result_with_its_token_counts_under_a_name_that_is_gone(lucius: Live) -> None:
    """A protocol may be taken away while its service works: what was done is not lost for it."""
    await lucius.accepted()
    (directive,) = await lucius.pull()
    bound = {name: directive[name] for name in (*BOUND, "callback_token")}
    reply = {**bound, "type": "RESULT", "status": "SUCCEEDED", "output_ref": "s3://b/x"}
    answer = await lucius.post("/v1/services/gone/replies", {"replies": [reply, {}]})
    assert [each["status"] for each in answer.json()["outcomes"]] == [200, 401]


async def test_a_worker_that_comes_late_finds_what_was_published_before(lucius: Live) -> None:
    """Subscriptions exist from the start, so nothing is published to nobody."""
    job_id = await lucius.accepted()
    assert [d["jobId"] for d in await lucius.pull()] == [job_id]


async def test_a_worker_that_vanishes_is_covered_by_the_ack_clock(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"ack_timeout_seconds": "0.1", "ack_backoff_seconds": "0.05"}
    async with live(tmp_path, **quick) as lucius:
        job_id = await lucius.accepted()
        (lost,) = await lucius.pull()
        (again,) = await lucius.pull(wait=30)
        assert (again["jobId"], again["attempt_no"]) == (job_id, 2)
        assert again["lease_id"] != lost["lease_id"]
        await lucius.reply("ack", again)
        stale = await lucius.reply("result", lost, status="SUCCEEDED")
        assert (stale.status_code, stale.json()["code"]) == (409, "STALE_ATTEMPT")
        await lucius.answer(again)
        assert (await lucius.job(job_id))["state"] == "SUCCEEDED"


async def test_a_batch_of_replies_has_an_outcome_for_each(lucius: Live) -> None:
    for number in range(2):
        await lucius.accepted(str(number))
    first, second = await lucius.pull(limit=1) + await lucius.pull(limit=1)

    def reply(directive: dict[str, Any], **fields: Any) -> dict[str, Any]:
        bound = {name: directive[name] for name in BOUND}
        return {**bound, "callback_token": directive["callback_token"], **fields}

    replies = [
        reply(first, type="ACK", worker_id="w-1"),
        reply(first, type="RESULT", status="SUCCEEDED", output_ref="s3://b/x"),
        reply(first, type="RESULT", status="SUCCEEDED", output_ref="s3://b/x"),
        reply(second, type="HEARTBEAT"),
        reply({**second, "callback_token": first["callback_token"]}, type="ACK"),
        reply(second, type="SHOUT"),
    ]
    answer = await lucius.post("/v1/services/ocr/replies", {"replies": replies})
    outcomes = [each.get("outcome") or each["code"] for each in answer.json()["outcomes"]]
    refused = ["CALLBACK_TOKEN_INVALID", "INVALID_CALLBACK"]
    assert outcomes == ["applied", "applied", "duplicate", "applied", *refused]
    executions = await lucius.client.get(f"/v1/jobs/{first['jobId']}/executions")
    assert executions.json()["executions"][0]["lease_owner"] == "w-1"


async def test_a_client_that_hangs_up_during_the_long_poll_loses_nothing(lucius: Live) -> None:
    """The request as the server sees it: its body, then silence, then the end of the connection."""
    app, hung_up, asked = lucius.client._transport.app, asyncio.Event(), asyncio.Event()  # type: ignore[attr-defined]
    body = json.dumps({"wait_seconds": 60}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        asked.set()
        await hung_up.wait()
        return {"type": "http.disconnect"}

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    path = "/v1/services/ocr/directives:pull"
    headers = [(b"content-type", b"application/json"), (b"host", b"lucius")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    scope |= {"headers": headers, "http_version": "1.1", "scheme": "http", "root_path": ""}
    polling = asyncio.create_task(app(scope, receive, send))
    await asked.wait()
    hung_up.set()
    await polling
    assert json.loads(sent[-1]["body"]) == {"directives": []}
    job_id = await lucius.accepted()
    (directive,) = await lucius.pull()
    assert (directive["jobId"], directive["attempt_no"]) == (job_id, 1)


# -- in virtual time -------------------------------------------------------------------------


def test_a_long_poll_asks_the_bus_twice_however_long_it_takes() -> None:
    async def scene(loop: VirtualLoop) -> tuple[list[int], float, int]:
        workers = Workers()
        found = await workers.pull(wait=60)
        return found, loop.time(), workers.bus.receives

    found, seconds, receives = run_virtually(scene)
    assert (found, receives) == ([], 2)
    assert seconds == pytest.approx(60)


def test_a_directive_ends_the_long_poll_at_once() -> None:
    async def scene(loop: VirtualLoop) -> float:
        workers = Workers()
        polling = asyncio.create_task(workers.pull(wait=60))
        await asyncio.sleep(20)
        await workers.put("a")
        assert await polling == [0]
        return loop.time()

    assert run_virtually(scene) == pytest.approx(20)


def test_what_arrives_as_the_worker_hangs_up_goes_to_another() -> None:
    async def scene(loop: VirtualLoop) -> None:
        workers, hung_up = Workers(), asyncio.Event()
        polling = asyncio.create_task(workers.pull(limit=5, gone=hung_up.wait))
        await asyncio.sleep(1)
        await workers.put("a", "b")
        hung_up.set()
        assert await polling == []
        assert sorted(await workers.pull(limit=5, wait=0)) == [0, 1]

    run_virtually(scene)


def test_workers_that_wait_together_share_what_comes() -> None:
    async def scene(loop: VirtualLoop) -> Counter[str]:
        workers, shares = Workers(), Counter[str]()

        async def work(name: str) -> None:
            while await workers.pull(wait=60):
                shares[name] += 1
                await asyncio.sleep(1)

        everyone = [asyncio.create_task(work(name)) for name in ("one", "two", "three")]
        await asyncio.sleep(0)
        await workers.put(*["a"] * 30)
        await asyncio.gather(*everyone)
        return shares

    assert run_virtually(scene) == Counter(one=10, two=10, three=10)


def test_forty_long_polls_of_one_tenant_leave_the_directives_of_another_alone() -> None:
    """They are never locked, given back or dead-lettered for it."""

    async def scene(loop: VirtualLoop) -> None:
        workers = Workers()
        of_a = frozenset({"a"})
        polls = [asyncio.create_task(workers.pull(wait=60, tenants=of_a)) for _ in range(40)]
        await asyncio.sleep(1)
        await workers.put(*["b"] * 20)
        found = await workers.pull(limit=20, wait=60, tenants=frozenset({"b"}))
        assert (sorted(found), loop.time()) == ([*range(20)], 1.0)
        assert await asyncio.gather(*polls) == [[]] * 40
        assert workers.bus.receives <= 2 * 41, "no busy loop"

    run_virtually(scene)


class Indiscriminate(MemoryBus):
    """As a broker that cannot choose by tenant."""

    @property
    def by_tenant(self) -> bool:
        return False


async def test_on_a_bus_that_cannot_choose_a_bound_worker_is_refused_with_what_helps() -> None:
    gateway = gateway_on(Indiscriminate(), FileConfig())
    with pytest.raises(RequestError, match=r"tenant_a.*pools.ocr.*without tenants") as refused:
        await gateway.pull("ocr", 1, 0, frozenset({"tenant_a"}), never)
    assert (refused.value.code, refused.value.status) == ("TENANT_WITHOUT_POOL", 403)
    assert not await gateway.pull("ocr", 1, 0, None, never), "one for all tenants is served"


def test_a_pull_that_is_broken_off_gives_back_what_it_has() -> None:
    """It may have some already, and wait for what is released for it."""

    async def scene(loop: VirtualLoop) -> None:
        workers = Workers(Slow())
        await workers.put("a", "b")
        pulling = asyncio.create_task(workers.pull(limit=5))
        await asyncio.sleep(0.1)
        pulling.cancel()
        await asyncio.wait([pulling])
        assert await backlog(workers.bus, "ocr", directive_topics("shared")) == 2
        assert sorted(await workers.pull(limit=2)) == [0, 1]

    run_virtually(scene)


class Slow(NoBacklog):
    """Says that something is coming, and it does not come."""

    async def release(self, service: str, room: int, tenants: BoundTenants) -> int:
        return room


def test_when_the_process_ends_whoever_waits_is_answered() -> None:
    async def scene(loop: VirtualLoop) -> float:
        workers = Workers()
        polling = asyncio.create_task(workers.pull(wait=60))
        await asyncio.sleep(5)
        workers.gateway.close()
        assert await polling == []
        assert await workers.pull(wait=60) == []
        return loop.time()

    assert run_virtually(scene) == pytest.approx(5)


async def test_what_a_worker_has_got_waits_in_no_queue(lucius: Live) -> None:
    """If the worker dies before its ACK, the ACK clock must find it, busy as the service may be."""
    for key in ("first", "second", "third"):
        await lucius.accepted(key)
    first, second = await lucius.pull(limit=2)
    assert (await lucius.reply("ack", first)).json() == {"outcome": "applied"}
    windows = lucius.runtime.outbox.windows
    entry = windows._open[second["lease_id"]]
    assert entry.until is not None
    assert entry.until - entry.since == second["ack_timeout_seconds"]
    waiting = [lease for lease in windows._open if lease != second["lease_id"]]
    assert [windows.queued(lease) for lease in waiting] == [True]
