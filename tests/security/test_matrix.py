"""Every documented route against every kind of bad credentials. A route that is new is in here by itself."""

import time
from pathlib import Path

import httpx
import pytest

from lucius.http.access import JwtAccess, JwtPolicy, KeyAccess
from lucius.http.context import ApiContext, Role
from lucius.http.keys import KeyFile, utc_now
from tests.api.world import ENVELOPE, World, client_of, context_of
from tests.security.issuer import AUDIENCE, ISSUER, Issuer
from tests.security.routes import (
    CALLBACKS,
    GUARDED,
    OPEN,
    PUBLIC,
    PUBLIC_PAGES,
    UNDOCUMENTED,
    DocumentedRoute,
)

UNAUTHENTICATED = (401, "UNAUTHENTICATED")
FORBIDDEN = (403, "FORBIDDEN")
each_guarded = pytest.mark.parametrize("route", GUARDED, ids=str)
each_callback = pytest.mark.parametrize("route", CALLBACKS, ids=str)


def bad_tokens(issuer: Issuer) -> dict[str, str | None]:
    return {
        "none": None,
        "malformed": "not-a-token",
        "expired": issuer.token(exp=int(time.time()) - 3600),
        "wrong audience": issuer.token(aud="another"),
        "wrong issuer": issuer.token(iss="https://evil.test"),
        "alg:none": issuer.unsigned("none"),
        "wrong signature": issuer.wrongly_signed(),
        "unknown key": issuer.signed(issuer.private["rsa"], "RS256", "another"),
    }


def bad_keys(keys: KeyFile) -> dict[str, str | None]:
    revoked, revoked_text = keys.create("revoked", tuple(Role), None)
    keys.revoke(revoked.key_id)
    _, expired_text = keys.create("expired", tuple(Role), None, utc_now())
    _, good = keys.create("good", tuple(Role), None)
    return {
        "none": None,
        "malformed": "lk_",
        "unknown": "lk_000000000000_" + "x" * 43,
        "another secret": good[:-1] + ("a" if good[-1] != "a" else "b"),
        "revoked": revoked_text,
        "expired": expired_text,
    }


def with_tokens(world: World, issuer: Issuer) -> ApiContext:
    return context_of(world, authenticate=JwtAccess(JwtPolicy(ISSUER, AUDIENCE, issuer.url)))


def with_keys(world: World, keys: KeyFile) -> ApiContext:
    return context_of(world, authenticate=KeyAccess(keys))


def verdict(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


def test_every_route_is_guarded_or_public_by_design() -> None:
    assert len(GUARDED) > 20
    assert len(CALLBACKS) == 4
    assert OPEN == PUBLIC
    assert UNDOCUMENTED == PUBLIC_PAGES


@each_guarded
async def test_bad_tokens_open_nothing(
    route: DocumentedRoute, world: World, issuer: Issuer
) -> None:
    async with client_of(with_tokens(world, issuer)) as client:
        for name, token in bad_tokens(issuer).items():
            answer = await route.ask(client, token)
            assert verdict(answer) == UNAUTHENTICATED, name
            assert answer.headers["www-authenticate"] == "Bearer"
    assert route.documents(*UNAUTHENTICATED)


@each_guarded
async def test_bad_keys_open_nothing(route: DocumentedRoute, world: World, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    async with client_of(with_keys(world, keys)) as client:
        for name, key in bad_keys(keys).items():
            assert verdict(await route.ask(client, key)) == UNAUTHENTICATED, name


@each_guarded
async def test_only_a_documented_role_opens_it(
    route: DocumentedRoute, world: World, issuer: Issuer
) -> None:
    others = [role.value for role in Role if role.value not in route.roles]
    async with client_of(with_tokens(world, issuer)) as client:
        for roles in ([], others):
            assert verdict(await route.ask(client, issuer.token(roles=roles))) == FORBIDDEN
        for role in route.roles:
            answer = await route.ask(client, issuer.token(roles=[role]))
            assert answer.status_code not in (401, 403)
    assert route.documents(*FORBIDDEN)


@pytest.mark.parametrize("route", [r for r in GUARDED if r.for_every_tenant], ids=str)
async def test_what_concerns_every_tenant_is_closed_to_callers_of_one(
    route: DocumentedRoute, world: World, issuer: Issuer
) -> None:
    async with client_of(with_tokens(world, issuer)) as client:
        answer = await route.ask(client, issuer.token(tenants=["tenant_a"]))
    assert verdict(answer) == (403, "TENANT_FORBIDDEN")
    assert route.documents(403, "TENANT_FORBIDDEN")


@each_callback
async def test_no_credentials_of_a_caller_open_a_callback(
    route: DocumentedRoute, world: World, issuer: Issuer
) -> None:
    async with client_of(with_tokens(world, issuer)) as client:
        assert verdict(await route.ask(client, None)) == (401, "CALLBACK_TOKEN_REQUIRED")
        for token in (issuer.token(), *bad_tokens(issuer).values()):
            if token is not None:
                assert verdict(await route.ask(client, token)) == (401, "CALLBACK_TOKEN_INVALID")
    assert route.documents(401, "CALLBACK_TOKEN_INVALID")


@pytest.mark.parametrize("path", sorted(PUBLIC | PUBLIC_PAGES))
async def test_public_pages_need_nobody_and_name_no_tenant(
    path: str, world: World, issuer: Issuer
) -> None:
    async with client_of(with_tokens(world, issuer)) as client:
        await world.submit({**ENVELOPE, "tenant_id": "tenant_secret"})
        answer = await client.get(path)
    assert answer.status_code == 200
    assert "tenant_secret" not in answer.text
