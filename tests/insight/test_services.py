"""Workers are known by what they say, and a service shows who works for it, how fast and how well."""

from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.core.decide import decide
from lucius.core.inputs import AckReceived, AttemptRequested, EntryReleased
from lucius.core.plan import FIRST_SHARD, OUTBOX, TEMPORAL
from lucius.core.routing import LANES
from lucius.http.context import Caller, Role
from lucius.operations.service_stats import read_record
from lucius.operations.workers import Workers
from lucius.ports.lanes import FixedLanes
from tests.api.live import Live, live
from tests.api.provoking import called_by
from tests.api.world import client_of
from tests.conformance.jobs import make


async def service_of(lucius: Live, name: str = "ocr") -> dict[str, Any]:
    answer = await lucius.client.get("/v1/services")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = next(s for s in answer.json()["services"] if s["service"] == name)
    return found


async def test_a_service_without_workers_was_never_seen(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.accepted()
        ocr = await service_of(lucius)
        assert (ocr["last_seen"], ocr["workers"], ocr["step_types"]) == (None, [], ["OCR"])
        assert (ocr["waiting"], ocr["running"], ocr["subscribed"]) == (1, 0, True)


async def test_a_pull_an_ack_and_a_result_show_the_worker(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.accepted("one")
        body = {"max": 1, "wait_seconds": 10, "worker_id": "w1", "slots": 4, "version": "2.1"}
        pulled = await lucius.post("/v1/services/ocr/directives:pull", body)
        (directive,) = pulled.json()["directives"]
        (worker,) = (await service_of(lucius))["workers"]
        assert (worker["worker_id"], worker["running"]) == ("w1", 0)
        assert (worker["slots"], worker["version"]) == (4, "2.1")
        await lucius.reply("ack", directive, worker_id="w1", slots=8, version="2.2")
        ocr = await service_of(lucius)
        (worker,) = ocr["workers"]
        assert (worker["running"], worker["slots"], worker["version"]) == (1, 8, "2.2")
        assert (ocr["running"], ocr["waiting"]) == (1, 0)
        await lucius.answer(directive)
        ocr = await service_of(lucius)
        assert (ocr["workers"][0]["running"], ocr["running"]) == (0, 0)
        assert (ocr["rate_per_minute"], ocr["failure_rate"]) == (1.0, 0.0)


async def test_failures_count_in_the_failure_rate(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        for number in range(4):
            await lucius.accepted(f"key-{number}")
            await lucius.work("SUCCEEDED" if number else "FAILED_FINAL")
        assert (await service_of(lucius))["failure_rate"] == 0.25


async def test_who_was_seen_is_known_after_a_restart(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.accepted()
        await lucius.work()
        seen = (await service_of(lucius))["last_seen"]
        await lucius.runtime.insight.published_stats.write()
    async with live(tmp_path) as lucius:
        ocr = await service_of(lucius)
        assert ocr["last_seen"] is not None
        assert ocr["last_seen"][:19] == seen[:19]


async def test_nothing_is_written_while_nothing_is_seen(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.runtime.insight.published_stats.write()
        notes = await lucius.runtime.ledger.shared_records().rows()
        await lucius.runtime.insight.published_stats.write()
        assert await lucius.runtime.ledger.shared_records().rows() == notes


async def test_a_caller_bound_to_tenants_sees_no_numbers_of_others(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        await lucius.accepted()
        await lucius.work()
        await lucius.post("/v1/services/ocr:pause", {"reason": "tenant_a's disk is full"})
        bound = Caller("b", frozenset(Role), frozenset({"tenant_b"}))
        context = lucius.runtime.context(authenticate=called_by(bound), registry=None)
        async with client_of(context) as client:
            answer = await client.get("/v1/services")
            ocr = next(s for s in answer.json()["services"] if s["service"] == "ocr")
            assert "disk" not in answer.text
            numbers = ("waiting", "sent", "running", "rate_per_minute", "failure_rate")
            assert [ocr[name] for name in numbers] == [None] * 5
            assert ocr["workers"] == []
            refused = await client.post("/v1/services/ocr:resume")
            assert refused.json()["code"] == "TENANT_FORBIDDEN"


@pytest.mark.parametrize("order", ["pause", "resume"])
async def test_a_service_that_nobody_knows_is_not_found(tmp_path: Path, order: str) -> None:
    async with live(tmp_path) as lucius:
        answer = await lucius.post(f"/v1/services/fax:{order}")
        assert (answer.status_code, answer.json()["code"]) == (404, "SERVICE_NOT_FOUND")
        assert "ocr" in answer.json()["detail"]


@pytest.mark.parametrize("reason", [5, "x" * 501])
async def test_a_reason_that_is_no_short_text_is_refused(tmp_path: Path, reason: object) -> None:
    async with live(tmp_path) as lucius:
        answer = await lucius.post("/v1/services/ocr:pause", {"reason": reason})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/reason")
        assert (await service_of(lucius))["paused"] is None


@pytest.mark.parametrize("engine", [OUTBOX, TEMPORAL])
def test_what_is_at_work_is_counted_by_who_owns_the_lane_of_its_engine(engine: str) -> None:
    first = FIRST_SHARD[engine]
    job = make(1, engine=engine).job
    lease = ("ocr", 1, "lease-1")
    now = job.updated_at
    if engine == TEMPORAL:
        job = decide(job, AttemptRequested(*lease), now).job
    job = decide(job, EntryReleased("ocr", "lease-1"), now).job
    job = decide(job, AckReceived(*lease, "w1"), now).job
    for owned, running in ((range(first, first + LANES), 1), ((), 0)):
        workers = Workers(FixedLanes(owned))
        workers.took_up(job)
        (seen,) = workers.known().values()
        assert seen.workers["w1"].running == running


STORED = 10**300
"""What a worker could say of itself in an earlier release."""


async def test_a_pull_that_says_nonsense_is_refused_and_not_registered(tmp_path: Path) -> None:
    async with live(tmp_path) as lucius:
        for field, value in (("slots", 1e300), ("slots", True), ("version", {}), ("worker_id", 7)):
            answer = await lucius.post("/v1/services/ocr/directives:pull", {field: value})
            assert answer.status_code == 422, answer.text
            assert answer.json()["errors"][0]["pointer"] == f"/{field}"
        assert (await service_of(lucius))["workers"] == []


async def test_a_worker_that_may_not_pull_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Service Bus, where a worker that is bound to tenants needs a pool of theirs."""
    monkeypatch.setattr(MemoryBus, "by_tenant", False)
    bound = Caller("worker", frozenset(Role), frozenset({"tenant_a"}))
    async with live(tmp_path) as lucius:
        context = lucius.runtime.context(authenticate=called_by(bound), registry=None)
        async with client_of(context) as client:
            body = {"slots": 4, "worker_id": "w1"}
            answer = await client.post("/v1/services/ocr/directives:pull", json=body)
        assert answer.status_code == 403, answer.text
        assert (await service_of(lucius))["workers"] == []


def test_slots_that_an_earlier_release_stored_are_not_read() -> None:
    stored: dict[str, Any] = {"first": 1.0, "last": 1.0, "success": None, "minutes": []}
    workers = {"w": [1.0, STORED, "1", 0], "v": [1.0, 8, "1", 0]}
    read = read_record({"ocr": {**stored, "workers": workers}})["ocr"].workers
    assert (read["w"].slots, read["v"].slots) == (None, 8)
