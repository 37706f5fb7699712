"""Who is calling: API keys or OIDC JWTs, taken from the request and turned into a `Caller`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from starlette.requests import Request

from lucius.api.context import Caller, Role
from lucius.api.keys import KeyFile
from lucius.api.problems import Problem

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Signatures only: `none` and shared secrets are never accepted."""


class KeyAccess:
    """`Authorization: Bearer lk_...` or `X-Api-Key: lk_...`."""

    def __init__(self, keys: KeyFile) -> None:
        self._keys = keys

    async def __call__(self, request: Request) -> Caller:
        text = request.headers.get("x-api-key") or bearer(request)
        caller = self._keys.caller_of(text) if text else None
        if caller is None:
            raise unauthenticated("an API key that is known and not revoked is needed")
        return caller


@dataclass(frozen=True, slots=True)
class JwtPolicy:
    issuer: str
    audience: str
    jwks_url: str
    algorithms: Sequence[str] = ALGORITHMS
    roles_claim: str = "roles"
    tenants_claim: str = "tenants"
    leeway_seconds: float = 30.0


class JwtAccess:
    """`Authorization: Bearer <JWT>`, signed by a key that the issuer publishes."""

    def __init__(self, policy: JwtPolicy) -> None:
        unsafe = [name for name in policy.algorithms if name not in ALGORITHMS]
        if unsafe:
            raise ValueError(f"not an accepted algorithm: {', '.join(unsafe)}")
        self._policy = policy
        self._jwks = jwt.PyJWKClient(policy.jwks_url, cache_keys=True, lifespan=300, timeout=5)

    async def __call__(self, request: Request) -> Caller:
        text = bearer(request)
        if not text:
            raise unauthenticated("a bearer token is needed")
        try:
            key = await asyncio.to_thread(self._jwks.get_signing_key_from_jwt, text)
            claims = self._claims(text, key.key)
        except jwt.PyJWTError as error:
            raise unauthenticated(f"the token is not accepted: {error}") from error
        return caller_of(claims, self._policy)

    def _claims(self, text: str, key: Any) -> dict[str, Any]:
        policy = self._policy
        claims: dict[str, Any] = jwt.decode(
            text,
            key,
            algorithms=list(policy.algorithms),
            audience=policy.audience,
            issuer=policy.issuer,
            leeway=policy.leeway_seconds,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims


def caller_of(claims: dict[str, Any], policy: JwtPolicy) -> Caller:
    """Roles that are not ours are passed over; no tenants claim means no tenant, `*` means all."""
    given = claims.get(policy.roles_claim)
    roles = frozenset(Role(r) for r in _texts(given) if r in Role._value2member_map_)
    tenants = frozenset(_texts(claims.get(policy.tenants_claim)))
    return Caller(str(claims["sub"]), roles, None if "*" in tenants else tenants)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def bearer(request: Request) -> str | None:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" and text else None


def unauthenticated(detail: str) -> Problem:
    return Problem("UNAUTHENTICATED", detail, headers={"www-authenticate": "Bearer"})
