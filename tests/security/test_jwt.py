"""JWTs: only what the issuer signed for us opens anything, and bad tokens cannot make LUCIUS call out."""

import asyncio
import base64
import hmac
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from lucius.http.access import (
    FRESH_SECONDS,
    MAX_BYTES,
    PAUSE_SECONDS,
    STALE_SECONDS,
    Jwks,
    JwtAccess,
    JwtPolicy,
    UnsafePolicyError,
    caller_of,
    fetch_from,
    parsed_keys,
)
from lucius.http.context import ApiContext, Role
from tests.api.world import ENVELOPE, World, accepted, client_of, context_of
from tests.security.issuer import AUDIENCE, ISSUER, Issuer


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Guarded:
    """An API behind the issuer, with a clock that only tests move."""

    issuer: Issuer
    world: World
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        policy = JwtPolicy(ISSUER, AUDIENCE, self.issuer.url)
        jwks = Jwks(fetch_from(self.issuer.url), self.clock)
        self.access = JwtAccess(policy, jwks)

    @property
    def context(self) -> ApiContext:
        return context_of(self.world, authenticate=self.access)

    async def ask(self, token: str | None) -> tuple[int, str]:
        headers = {"authorization": f"Bearer {token}"} if token is not None else {}
        async with client_of(self.context) as client:
            answer = await client.get("/v1/jobs", headers=headers)
        return answer.status_code, answer.json().get("code", "")


@pytest.fixture
def guarded(issuer: Issuer, world: World) -> Guarded:
    return Guarded(issuer, world)


REFUSED = (401, "UNAUTHENTICATED")
UNKNOWN = (503, "AUTHENTICATION_UNAVAILABLE")


@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
async def test_a_token_of_the_issuer_is_taken(guarded: Guarded, kid: str) -> None:
    assert await guarded.ask(guarded.issuer.token(kid)) == (200, "")


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1_000_000_000},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": 4_000_000_000},
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://evil.test"},
        {"iss": None},
        {"sub": None},
    ],
    ids=str,
)
async def test_a_token_that_is_not_for_us_now_is_refused(
    guarded: Guarded, changes: dict[str, Any]
) -> None:
    assert await guarded.ask(guarded.issuer.token(**changes)) == REFUSED


async def test_what_the_issuer_did_not_sign_is_refused(guarded: Guarded) -> None:
    issuer = guarded.issuer
    public = issuer.private["rsa"].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    bad = [
        None,
        "",
        "x",
        "a.b.c",
        "x" * 20_000,
        issuer.unsigned("none"),
        issuer.unsigned("None"),
        issuer.unsigned("nOnE", "AAAA"),
        issuer.unsigned("HS256", hs256(issuer.unsigned("HS256"), pem)),
        issuer.wrongly_signed(),
        issuer.signed(stranger, "RS256", "rsa"),
        issuer.signed(issuer.private["ec"], "ES256", "rsa"),
        issuer.signed(issuer.private["rsa"], "RS256", None),
    ]
    for token in bad:
        assert await guarded.ask(token) == REFUSED, token
    assert await guarded.ask(issuer.token()) == (200, "")


def hs256(unsigned: str, key: bytes) -> str:
    """The signature of a token whose public key is taken for a shared secret."""
    mac = hmac.digest(key, unsigned.rstrip(".").encode(), "sha256")
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


async def test_unknown_key_ids_fetch_no_more_than_once_a_pause(guarded: Guarded) -> None:
    stranger = ec.generate_private_key(ec.SECP256R1())
    tokens = [guarded.issuer.signed(stranger, "ES256", f"kid-{n}") for n in range(20)]
    answers = await asyncio.gather(*(guarded.ask(token) for token in tokens))
    assert set(answers) == {REFUSED}
    assert guarded.issuer.fetches == 1
    guarded.clock.now += PAUSE_SECONDS
    for token in tokens:
        await guarded.ask(token)
    assert guarded.issuer.fetches == 2


async def test_a_forbidden_algorithm_fetches_nothing(guarded: Guarded) -> None:
    await guarded.ask(guarded.issuer.unsigned("none"))
    await guarded.ask(guarded.issuer.unsigned("HS256", "AAAA"))
    assert guarded.issuer.fetches == 0


async def test_a_new_key_of_the_issuer_is_taken_up(guarded: Guarded) -> None:
    issuer = guarded.issuer
    assert await guarded.ask(issuer.token()) == (200, "")
    issuer.private["rsa-2"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer.published = {"rsa-2"}
    assert await guarded.ask(issuer.token("rsa-2")) == REFUSED
    guarded.clock.now += PAUSE_SECONDS
    assert await guarded.ask(issuer.token("rsa-2")) == (200, "")
    assert await guarded.ask(issuer.token("rsa")) == REFUSED


async def test_without_a_key_id_the_only_key_counts(guarded: Guarded) -> None:
    guarded.issuer.published = {"rsa"}
    token = guarded.issuer.signed(guarded.issuer.private["rsa"], "RS256", None)
    assert await guarded.ask(token) == (200, "")


@pytest.mark.parametrize("status", [500, 302])
async def test_an_outage_of_the_issuer_is_no_verdict_on_a_token(
    guarded: Guarded, status: int
) -> None:
    guarded.issuer.status = status
    assert await guarded.ask(guarded.issuer.token()) == UNKNOWN
    guarded.issuer.status = 200
    assert await guarded.ask(guarded.issuer.token()) == UNKNOWN
    guarded.clock.now += PAUSE_SECONDS
    assert await guarded.ask(guarded.issuer.token()) == (200, "")


async def test_keys_outlive_an_outage_but_not_for_ever(guarded: Guarded) -> None:
    issuer = guarded.issuer
    assert await guarded.ask(issuer.token()) == (200, "")
    issuer.status = 500
    guarded.clock.now += FRESH_SECONDS
    assert await guarded.ask(issuer.token()) == (200, "")
    guarded.clock.now += STALE_SECONDS
    assert await guarded.ask(issuer.token()) == UNKNOWN


async def test_a_fetch_that_hangs_does_not_hold_up_others(guarded: Guarded) -> None:
    issuer = guarded.issuer
    issuer.held.clear()
    waiting = asyncio.create_task(guarded.ask(issuer.token()))
    assert await asyncio.to_thread(issuer.asked.wait, 10)
    async with client_of(guarded.context) as client:
        assert (await client.get("/healthz")).status_code == 200
    issuer.held.set()
    assert await waiting == (200, "")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"keys": 7}', b"{", b" " * (MAX_BYTES + 1)], ids=len
)
async def test_what_is_no_key_set_is_an_outage(guarded: Guarded, body: bytes) -> None:
    guarded.issuer.body = body
    assert await guarded.ask(guarded.issuer.token()) == UNKNOWN


def test_shared_secrets_and_keys_for_encryption_are_passed_over(issuer: Issuer) -> None:
    rows = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {**issuer.jwk("rsa"), "kid": "b", "use": "enc"},
        issuer.jwk("ec"),
        7,
    ]
    assert set(parsed_keys(json.dumps({"keys": rows}).encode())) == {"ec"}


async def test_a_short_rsa_key_is_refused(guarded: Guarded) -> None:
    issuer = guarded.issuer
    issuer.private["rsa-1"] = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer.published.add("rsa-1")
    with pytest.warns(match="below the minimum"):
        token = issuer.token("rsa-1")
    assert await guarded.ask(token) == REFUSED


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithms": ("RS256", "HS256")},
        {"algorithms": ("none",)},
        {"algorithms": ()},
        {"issuer": ""},
        {"audience": ""},
        {"jwks_url": "http://issuer.test/keys"},
        {"jwks_url": "file:///etc/passwd"},
    ],
    ids=str,
)
def test_a_policy_under_which_tokens_could_be_forged_is_refused(changes: dict[str, Any]) -> None:
    fields = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": "https://issuer.test/keys"}
    with pytest.raises(UnsafePolicyError):
        JwtAccess(JwtPolicy(**{**fields, **changes}))


@pytest.mark.parametrize(
    ("claims", "roles", "tenants"),
    [
        ({}, set(), set()),
        ({"roles": "submit read other", "tenants": "tenant a"}, {"submit", "read"}, {"tenant a"}),
        ({"roles": ["read", 7], "tenants": ["a", "b", None]}, {"read"}, {"a", "b"}),
        ({"roles": {"admin": True}, "tenants": {"a": 1}}, set(), set()),
        ({"roles": ["ADMIN"], "tenants": ["*"]}, set(), None),
    ],
)
def test_claims_give_no_more_than_they_say(
    claims: dict[str, Any], roles: set[str], tenants: set[str] | None
) -> None:
    caller = caller_of({"sub": "s", **claims})
    assert caller.roles == {Role(role) for role in roles}
    assert caller.tenants == tenants


async def test_a_caller_acts_for_the_tenants_of_its_token(guarded: Guarded) -> None:
    token = guarded.issuer.token(tenants=["tenant_b"])
    async with client_of(guarded.context) as client:
        client.headers["authorization"] = f"Bearer {token}"
        await accepted(client, tenant_id="tenant_b")
        refused: httpx.Response = await client.post(
            "/v1/orchestrate", json={**ENVELOPE, "tenant_id": "tenant_a"}
        )
    assert (refused.status_code, refused.json()["code"]) == (403, "TENANT_FORBIDDEN")
