"""Workers have a limit of their own: by tenant for replies, by caller for the pull gateway."""

from typing import Any

import pytest

from lucius.app.access import worker_rate_limit
from lucius.app.settings import load_settings
from lucius.http.limits import RateLimit
from tests.api.world import World, accepted, bearer, context_of
from tests.api.world import client_of as api
from tests.security.test_limits import Clock, allowed, by_name


async def directive_for(world: World, tenant_id: str) -> dict[str, Any]:
    """What a reply of this tenant's worker must carry."""
    async with api(context_of(world)) as client:
        return await world.out(await accepted(client, tenant_id=tenant_id))


def limits(rate: float | None, worker_rate: float | None) -> dict[str, RateLimit]:
    given = {"rate": rate, "worker_rate": worker_rate}
    return {name: RateLimit(each, Clock()) for name, each in given.items() if each is not None}


async def test_replies_are_limited_by_the_tenant_of_their_token(world: World) -> None:
    bound = {tenant: await directive_for(world, tenant) for tenant in ("tenant_a", "tenant_b")}
    answers = []
    async with api(context_of(world, **limits(1, 2))) as client:
        for tenant in ["tenant_a"] * 3 + ["tenant_b"]:
            headers = bearer(bound[tenant], tenant)
            beat = {**bound[tenant], "type": "HEARTBEAT"}
            path = "/v1/callbacks/heartbeat"
            answers.append((await client.post(path, json=beat, headers=headers)).status_code)
    assert answers == [200, 200, 429, 200]


async def test_each_reply_of_a_batch_counts_for_its_tenant(world: World) -> None:
    bound = {tenant: await directive_for(world, tenant) for tenant in ("tenant_a", "tenant_b")}
    replies = [
        {
            **bound[tenant],
            "type": "HEARTBEAT",
            "callback_token": bearer(bound[tenant], tenant)["authorization"].split()[1],
        }
        for tenant in ["tenant_a"] * 3 + ["tenant_b"]
    ]
    async with api(context_of(world, **limits(1, 2))) as client:
        answer = await client.post("/v1/services/ocr/replies", json={"replies": replies})
    outcomes = answer.json()["outcomes"]
    assert [each["status"] for each in outcomes] == [200, 200, 429, 200]
    assert outcomes[2]["code"] == "RATE_LIMITED"


async def test_the_pull_gateway_is_limited_by_caller_and_apart_from_the_rest(world: World) -> None:
    answers = []
    async with api(context_of(world, authenticate=by_name, **limits(1, 2))) as client:
        for name in ("a", "a", "a", "b"):
            headers = {"x-name": name}
            path = "/v1/services/ocr/replies"
            answer = await client.post(path, json={"replies": []}, headers=headers)
            answers.append(answer.status_code)
        answers.append((await client.get("/v1/jobs", headers={"x-name": "a"})).status_code)
    assert answers == [200, 200, 429, 200, 200]


@pytest.mark.parametrize(
    ("body", "token", "status"),
    [
        (b"{}", "", 401),
        (b"{", "", 401),
        (b'{"jobId":"j","stepId":"s","attempt_no":1,"lease_id":"l"}', "", 401),
        (b'{"jobId":"j","stepId":"s","attempt_no":1,"lease_id":"l"}', "k1.YQ.YQ", 401),
    ],
    ids=["malformed", "no JSON", "no token", "a guess"],
)
@pytest.mark.parametrize(("rate", "worker_rate"), [(2, 100), (2, None), (None, 2)])
async def test_callbacks_that_nobody_answers_for_are_limited_by_address(
    world: World,
    body: bytes,
    token: str,
    status: int,
    rate: float | None,
    worker_rate: float | None,
) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with api(context_of(world, **limits(rate, worker_rate))) as client:
        calls = [
            await client.post("/v1/callbacks/ack", content=body, headers=headers) for _ in range(3)
        ]
    assert [call.status_code for call in calls] == [status, status, 429]


@pytest.mark.parametrize("body", [b"{}", b"{", b"x" * 100_000])
async def test_a_reply_that_cannot_be_read_counts_for_the_tenant_of_its_token(
    world: World, body: bytes
) -> None:
    bound = {tenant: await directive_for(world, tenant) for tenant in ("tenant_a", "tenant_b")}
    answers = []
    async with api(context_of(world, **limits(100, 2))) as client:
        for tenant in ["tenant_a"] * 3 + ["tenant_b"]:
            headers = bearer(bound[tenant], tenant)
            answer = await client.post("/v1/callbacks/ack", content=body, headers=headers)
            answers.append(answer.status_code == 429)
    assert answers == [False, False, True, False]


async def test_a_stranger_takes_nothing_from_a_tenant(world: World) -> None:
    bound = await directive_for(world, "tenant_a")
    async with api(context_of(world, **limits(1, 1))) as client:
        for _ in range(3):
            await client.post("/v1/callbacks/ack", json={})
        answer = await client.post("/v1/callbacks/ack", json=bound, headers=bearer(bound))
    assert answer.status_code == 200


def test_workers_may_send_twenty_times_as_much() -> None:
    limit = worker_rate_limit(load_settings({"LUCIUS_RATE_LIMIT_PER_SECOND": "0.25"}))
    assert limit is not None
    assert allowed(limit, "a") == 5
    assert worker_rate_limit(load_settings({})) is None
