"""What storage and bus say names files, hosts and accounts: operators are told, and nobody else."""

from collections.abc import Iterable

import pytest
from starlette.requests import Request

from lucius.core.errors import LedgerUnavailableError
from lucius.http.context import Caller, Role
from tests.api.world import ENVELOPE, World, accepted, bearer, client_of, context_of

SAID = "/srv/data/ledger.db: the disk is full"
READER = (Role.SUBMIT, Role.READ, Role.SERVICE)


def knowing(roles: Iterable[Role], tenants: frozenset[str] | None = None) -> object:
    caller = Caller("somebody", frozenset(roles), tenants)

    async def authenticate(request: Request) -> Caller:
        return caller

    return authenticate


@pytest.mark.parametrize(
    ("authenticate", "told"),
    [
        (knowing(READER, frozenset({"tenant_a"})), False),
        (knowing(READER), False),
        (knowing((*READER, Role.OPERATE)), True),
        (None, True),
    ],
    ids=["tenant", "reader", "operator", "without authentication"],
)
async def test_why_the_ledger_is_away_is_said_to_operators(
    world: World, authenticate: object, told: bool
) -> None:
    world.ledger.failing = LedgerUnavailableError(SAID)
    async with client_of(context_of(world, authenticate=authenticate)) as client:
        for answer in (
            await client.post("/v1/orchestrate", json=ENVELOPE),
            await client.get("/v1/jobs/job_0"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "LEDGER_UNAVAILABLE")
            assert (SAID in answer.text) is told


@pytest.mark.parametrize(("tenants", "told"), [(frozenset({"tenant_a"}), False), (None, True)])
async def test_why_of_a_job_tells_no_more_to_who_is_bound_to_tenants(
    world: World, tenants: frozenset[str] | None, told: bool
) -> None:
    known = knowing(READER, tenants)
    async with client_of(context_of(world, authenticate=known)) as client:
        world.ledger.failing = LedgerUnavailableError(SAID)
        answer = await client.get("/v1/jobs/job_0/why")
    assert answer.json()["cause"] == "LEDGER_AWAY"
    assert (SAID in answer.text) is told


@pytest.mark.parametrize("route", ["/v1/callbacks/ack", "/v1/services/ocr-service/replies"])
async def test_workers_are_told_that_it_is_away_and_no_more(world: World, route: str) -> None:
    async with client_of(context_of(world, authenticate=knowing(READER))) as client:
        bound = await world.out(await accepted(client))
        headers = bearer(bound)
        reply = {**bound, "type": "ACK", "callback_token": headers["authorization"][7:]}
        body = {"replies": [reply]} if route.endswith("replies") else bound
        world.ledger.failing = LedgerUnavailableError(SAID)
        answer = await client.post(route, json=body, headers=headers)
    assert "LEDGER_UNAVAILABLE" in answer.text
    assert SAID not in answer.text
