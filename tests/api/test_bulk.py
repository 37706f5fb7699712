"""One order for many jobs: counted first, given to each, safe to repeat, bound to the caller."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lucius.core.effects import Outcome
from lucius.engine.windows import LEAST
from lucius.http.context import Caller, Role
from lucius.http.routes import bulk
from lucius.ports.ledger import JobQuery
from tests.api.live import Live, live
from tests.api.world import World, accepted, client_of, context_of


@pytest.fixture
async def lucius(tmp_path: Path) -> AsyncIterator[Live]:
    async with live(tmp_path) as lucius:
        yield lucius


def counts(answer: dict[str, Any]) -> tuple[int, int, int, dict[str, int]]:
    return answer["matched"], answer["applied"], answer["already"], answer["refused"]


async def states(lucius: Live) -> list[str]:
    return sorted(job["state"] for job in (await lucius.client.get("/v1/jobs")).json()["jobs"])


async def test_a_dry_run_counts_and_moves_nothing(lucius: Live) -> None:
    for number in range(3):
        await lucius.accepted(str(number))
    before = await states(lucius)
    answer = await lucius.bulk("cancel", {}, dry_run=True)
    assert answer == {
        "dry_run": True,
        "matched": 3,
        "applied": 0,
        "already": 0,
        "refused": {},
        "refusals": [],
        "more": False,
    }
    assert await states(lucius) == before


async def test_a_dry_run_counts_all_that_match_beyond_the_limit(
    lucius: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE_SIZE", 2)
    jobs = [await lucius.accepted(str(number)) for number in range(7)]
    for limit, more in ((3, True), (6, True), (7, False)):
        answer = await lucius.bulk("cancel", {}, dry_run=True, limit=limit)
        assert (answer["matched"], answer["more"]) == (7, more), "more: one request is not enough"
    await lucius.bulk("cancel", {}, immediate=True)
    cancelled = {"state": "CANCELLED"}
    assert (await lucius.bulk("redrive", cancelled, limit=2))["applied"] == 2
    for job_id in jobs[-2:]:
        await lucius.linked(job_id)
    answer = await lucius.bulk("redrive", cancelled, dry_run=True, limit=1)
    assert answer["matched"] == 5, "those that were redriven are not counted"


async def test_what_matches_is_paused_resumed_and_cancelled(lucius: Live) -> None:
    own = [await lucius.accepted(str(number)) for number in range(3)]
    other = await lucius.accepted(tenant_id="tenant_b")
    mine = {"tenant_id": "tenant_a"}
    assert counts(await lucius.bulk("pause", mine)) == (3, 3, 0, {})
    assert counts(await lucius.bulk("pause", mine)) == (0, 0, 0, {}), "nothing is left to pause"
    assert (await lucius.job(other))["state"] == "DISPATCHING"
    assert counts(await lucius.bulk("resume", {"state": ["PAUSING", "paused"]})) == (3, 3, 0, {})
    assert counts(await lucius.bulk("cancel", mine, immediate=True)) == (3, 3, 0, {})
    assert {(await lucius.job(job_id))["state"] for job_id in own} == {"CANCELLED"}
    assert counts(await lucius.bulk("cancel", mine)) == (0, 0, 0, {})


async def test_a_limit_is_kept_and_the_same_request_goes_on(
    lucius: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE_SIZE", 2)
    for number in range(7):
        await lucius.accepted(str(number))
    seen = []
    while True:
        answer = await lucius.bulk("cancel", {}, limit=3)
        seen.append((answer["applied"], answer["more"]))
        if not answer["more"]:
            break
    assert seen == [(3, True), (3, True), (1, False)]
    out = LEAST  # what the window has let out ends when its lease does; the rest ended at once
    assert (await lucius.bulk("cancel", {"state": "CANCELLING"}))["already"] == out


async def test_orders_are_given_a_bounded_number_at_once(world: World) -> None:
    running = most = 0

    async def order(job_id: str) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return Outcome.APPLIED

    async with client_of(context_of(world)) as client:
        for number in range(200):
            await accepted(client, payload={"n": number})
    context = context_of(world)
    tally = await bulk.order_matching(context.engine, JobQuery(), lambda job: True, order, 10_000)
    assert (tally.applied, tally.matched) == (200, 200)
    assert 1 < most <= bulk.JOBS_AT_ONCE


async def test_the_whole_dlq_is_redriven_and_repeating_it_is_harmless(lucius: Live) -> None:
    failed = [await lucius.failed(key) for key in ("a", "b")]
    kept = await lucius.accepted("live")
    assert counts(await lucius.bulk("redrive", {}, dry_run=True)) == (2, 0, 0, {})
    assert counts(await lucius.bulk("redrive", {})) == (2, 2, 0, {})
    again = await lucius.bulk("redrive", {})
    assert again["applied"] == 0
    jobs = (await lucius.client.get("/v1/jobs")).json()["jobs"]
    assert sorted(job["redrive_of"] for job in jobs if job["redrive_of"]) == sorted(failed)
    assert (await lucius.job(kept))["state"] == "DISPATCHING"


async def test_cancelled_jobs_are_redriven_only_when_they_are_asked_for(lucius: Live) -> None:
    job_id = await lucius.accepted()
    await lucius.order(job_id, "cancel", immediate=True)
    assert (await lucius.bulk("redrive", {}))["matched"] == 0
    assert (await lucius.bulk("redrive", {"state": "CANCELLED"}))["applied"] == 1


async def test_what_is_dismissed_leaves_the_dlq_and_is_not_redriven(lucius: Live) -> None:
    for key in ("a", "b"):
        await lucius.failed(key)
    assert (await lucius.bulk("dismiss", {}))["applied"] == 2
    assert await lucius.dlq() == []
    assert (await lucius.bulk("redrive", {}))["matched"] == 0
    assert (await lucius.bulk("dismiss", {}))["matched"] == 0


async def test_refusals_are_counted_by_code(tmp_path: Path) -> None:
    async with live(tmp_path, max_inflight="2") as lucius:
        failed = [await lucius.failed(key) for key in ("a", "b", "c")]
        answer = await lucius.bulk("redrive", {})
    assert counts(answer) == (3, 2, 0, {"GLOBAL_SATURATED": 1})
    (refusal,) = answer["refusals"]
    assert refusal["code"] == "GLOBAL_SATURATED"
    assert refusal["jobId"] in failed


async def test_refusals_are_listed_up_to_a_number(
    lucius: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MAX_LISTED_REFUSALS", 2)
    for key in ("a", "b", "c"):
        await lucius.failed(key)
    answer = await lucius.bulk("redrive", {}, payload={"language": 7})
    assert (answer["refused"], len(answer["refusals"])) == ({"INVALID_PAYLOAD": 3}, 2)


async def test_a_corrected_payload_is_given_to_each_job_that_it_suits(lucius: Live) -> None:
    prompts = {"prompt_set": ["what is it?"]}
    ocr = await lucius.failed("ocr")
    sis = await lucius.accepted("sis", request_type="SIS", payload=prompts)
    await lucius.work("FAILED_FINAL", "sis")
    counted = await lucius.bulk("redrive", {}, payload={}, dry_run=True)
    assert counts(counted) == (2, 0, 0, {})
    answer = await lucius.bulk("redrive", {}, payload={"language": "de"})
    assert counts(answer) == (2, 1, 0, {"INVALID_PAYLOAD": 1})
    (refusal,) = answer["refusals"]
    assert (refusal["jobId"], refusal["code"]) == (sis, "INVALID_PAYLOAD")
    assert refusal["errors"] == [{"pointer": "/payload/prompt_set", "detail": "is required"}]
    new = await lucius.job(await lucius.linked(ocr))
    assert new["steps"][0]["payload"] == {"language": "de"}
    assert await lucius.dlq() == [sis], "what was refused stays where it was"
    assert counts(await lucius.bulk("redrive", {}, payload=prompts)) == (1, 1, 0, {})


async def test_a_corrected_payload_with_a_credential_is_given_to_none(lucius: Live) -> None:
    failed = await lucius.failed("ocr")
    answer = await lucius.bulk("redrive", {}, payload={"language": "de", "apiKey": "hunter2"})
    assert counts(answer) == (1, 0, 0, {"PAYLOAD_HAS_CREDENTIALS": 1})
    (refusal,) = answer["refusals"]
    assert [each["pointer"] for each in refusal["errors"]] == ["/payload/apiKey"]
    assert await lucius.dlq() == [failed]


@pytest.mark.parametrize(
    ("verb", "body", "pointer"),
    [
        ("cancel", {}, "/filter"),
        ("cancel", {"filter": []}, "/filter"),
        ("cancel", {"filter": {"tenant": "a"}}, "/filter/tenant"),
        ("cancel", {"filter": {"tenant_id": []}}, "/filter/tenant_id"),
        ("cancel", {"filter": {"tenant_id": [7]}}, "/filter/tenant_id"),
        ("cancel", {"filter": {"state": "SUCCEEDED"}}, "/filter/state"),
        ("resume", {"filter": {"state": "QUEUED"}}, "/filter/state"),
        ("pause", {"filter": {"request_type": 3}}, "/filter/request_type"),
        ("redrive", {"filter": {"created_from": "yesterday"}}, "/filter/created_from"),
        ("redrive", {"filter": {"created_to": 12}}, "/filter/created_to"),
        ("cancel", {"filter": {}, "dry_run": "yes"}, "/dry_run"),
        ("cancel", {"filter": {}, "immediate": 1}, "/immediate"),
        ("redrive", {"filter": {}, "payload": [{}]}, "/payload"),
        ("redrive", {"filter": {}, "payload": "{}", "dry_run": True}, "/payload"),
        ("dismiss", {"filter": {}, "limit": 0}, "/limit"),
        ("dismiss", {"filter": {}, "limit": True}, "/limit"),
    ],
)
async def test_a_bad_order_names_its_field_and_moves_nothing(
    client: httpx.AsyncClient, world: World, verb: str, body: dict[str, Any], pointer: str
) -> None:
    job_id = await accepted(client)
    before = world.jobs[job_id]
    answer = await client.post(f"/v1/jobs:{verb}", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert world.jobs[job_id] is before


@pytest.mark.parametrize(
    ("tenants", "filters", "moved"),
    [
        ({"tenant_a"}, {}, ["job_0"]),
        ({"tenant_a"}, {"tenant_id": ["tenant_a", "tenant_b"]}, ["job_0"]),
        ({"tenant_a"}, {"tenant_id": "tenant_b"}, []),
        (set(), {}, []),
    ],
)
async def test_a_caller_moves_only_jobs_of_its_tenants(
    world: World, tenants: set[str], filters: dict[str, Any], moved: list[str]
) -> None:
    async def authenticate(request: Request) -> Caller:
        return Caller("op", frozenset(Role), frozenset(tenants))

    async with client_of(context_of(world)) as anyone:
        await accepted(anyone)
        await accepted(anyone, tenant_id="tenant_b")
    async with client_of(context_of(world, authenticate=authenticate)) as client:
        answer = await client.post("/v1/jobs:cancel", json={"filter": filters})
    assert answer.json()["applied"] == len(moved)
    assert [job_id for job_id, job in world.jobs.items() if job.terminal] == moved


async def test_orders_for_many_need_the_role_operate(world: World) -> None:
    async def authenticate(request: Request) -> Caller:
        return Caller("reader", frozenset(Role) - {Role.OPERATE})

    async with client_of(context_of(world, authenticate=authenticate)) as client:
        for verb in ("cancel", "pause", "resume", "redrive", "dismiss"):
            answer = await client.post(f"/v1/jobs:{verb}", json={"filter": {}})
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
