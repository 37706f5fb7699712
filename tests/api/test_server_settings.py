"""`GET /v1/admin/settings`: what is in force in the process that answers, for operators, without secrets."""

import httpx
import pytest
from starlette.requests import Request

from lucius import __version__
from lucius.app.settings import load_settings
from lucius.app.settings.kinds import MASK
from lucius.app.settings.loading import ROWS
from lucius.client import BlockingClient
from lucius.http.context import Caller, Role
from tests.api.world import World, client_of, context_of
from tests.cli.server import running

SECRET = "k1:never-shown-0123456789abcdef"
SECRETS = {row.env: SECRET for row in ROWS.values() if row.secret}
NATS = "nats://somebody:never-shown-password@127.0.0.1:4222"
ENVIRON = {**SECRETS, "LUCIUS_NATS_URL": NATS, "LUCIUS_MAX_ATEMPTS": "3"}
PATH = "/v1/admin/settings"


async def answered(*roles: Role, tenants: frozenset[str] | None = None) -> httpx.Response:
    async def authenticate(request: Request) -> Caller:
        return Caller("someone", frozenset(roles), tenants)

    shown = load_settings(
        ENVIRON, options={"LUCIUS_SYSTEM": "s1"}, stored={"LUCIUS_LEASE_SECONDS": "7"}
    )
    given = {"settings": shown.shown, "authenticate": authenticate}
    async with client_of(context_of(World(), **given)) as client:
        return await client.get(PATH)


async def test_every_setting_is_there_with_its_value_and_where_it_comes_from() -> None:
    answer = (await answered(Role.OPERATE)).json()
    rows = {each["name"]: (each["value"], each["source"]) for each in answer["settings"]}
    assert set(rows) == {row.env for row in ROWS.values()}
    assert rows["LUCIUS_SYSTEM"] == ("s1", "command line")
    assert rows["LUCIUS_LEASE_SECONDS"] == ("7", "app configuration")
    assert rows["LUCIUS_MAX_ATTEMPTS"] == ("3", "default")
    assert all(each["about"] for each in answer["settings"])
    assert answer["version"] == __version__
    assert "did you mean LUCIUS_MAX_ATTEMPTS?" in answer["warnings"][0]


async def test_no_secret_is_shown() -> None:
    answer = await answered(Role.OPERATE)
    rows = {each["name"]: each["value"] for each in answer.json()["settings"]}
    assert {rows[env] for env in SECRETS} == {MASK}
    assert rows["LUCIUS_NATS_URL"] == "nats://***@127.0.0.1:4222"
    assert "never-shown" not in answer.text


@pytest.mark.parametrize("role", [Role.SUBMIT, Role.READ, Role.SERVICE])
async def test_it_is_for_operators(role: Role) -> None:
    answer = await answered(role)
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


async def test_an_operator_of_some_tenants_does_not_see_what_counts_for_all() -> None:
    answer = await answered(Role.OPERATE, tenants=frozenset({"tenant_a"}))
    assert (answer.status_code, answer.json()["code"]) == (403, "TENANT_FORBIDDEN")


def test_the_python_client_reads_them() -> None:
    with running() as server, BlockingClient(server.url) as client:
        assert client.settings().version == __version__
