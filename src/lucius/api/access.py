"""Who is calling: API keys or OIDC JWTs, taken from the request and turned into a `Caller`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Any, Final

import jwt
from starlette.requests import Request

from lucius.api.context import Caller, Role
from lucius.api.jwks import Jwks, JwksUnavailableError, fetch_from
from lucius.api.keys import KeysUnavailableError, KnownKeys
from lucius.api.problems import Problem
from lucius.api.requests import bearer
from lucius.core.addresses import is_guarded
from lucius.core.errors import LuciusError

log = logging.getLogger("lucius")
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Signatures only: `none` and shared secrets are never accepted."""
ROLES_CLAIM: Final = "roles"
TENANTS_CLAIM: Final = "tenants"
"""Claims that list what a caller may do, and for which tenants: an issuer maps its own to them."""
MAX_TOKEN: Final = 16 * 1024
_PLAIN: Final = (
    jwt.ExpiredSignatureError,
    jwt.InvalidSignatureError,
    jwt.InvalidAlgorithmError,
    jwt.InvalidAudienceError,
    jwt.InvalidIssuerError,
    jwt.MissingRequiredClaimError,
)
"""Errors whose message repeats nothing of the token."""


class UnsafePolicyError(LuciusError):
    """Tokens could be forged under this policy."""


class KeyAccess:
    """`Authorization: Bearer lk_...` or `X-Api-Key: lk_...`."""

    def __init__(self, keys: KnownKeys) -> None:
        self._keys = keys
        self._told = ""

    async def __call__(self, request: Request) -> Caller:
        text = request.headers.get("x-api-key") or bearer(request)
        try:
            caller = await self._caller_of(text) if text else None
        except KeysUnavailableError as error:
            if self._told != str(error):
                self._told = str(error)
                log.error("callers cannot be checked: %s", error)
            raise Problem("AUTHENTICATION_UNAVAILABLE") from error
        if caller is None:
            raise unauthenticated("an API key that is known, not revoked and not expired is needed")
        return caller

    async def _caller_of(self, text: str) -> Caller | None:
        await self._keys.prepare(text)
        return self._keys.caller_of(text)


@dataclass(frozen=True, slots=True)
class JwtPolicy:
    issuer: str
    audience: str
    jwks_url: str
    algorithms: Sequence[str] = ALGORITHMS
    leeway_seconds: float = 30.0

    def check(self) -> None:
        """Raises UnsafePolicyError."""
        unsafe = [name for name in self.algorithms if name not in ALGORITHMS]
        if unsafe or not self.algorithms:
            names = ", ".join(unsafe) or "none at all"
            raise UnsafePolicyError(f"signature algorithms that are not accepted: {names}")
        if not self.issuer or not self.audience:
            raise UnsafePolicyError("LUCIUS_JWT_ISSUER and LUCIUS_JWT_AUDIENCE are needed")
        if not is_guarded(self.jwks_url):
            raise UnsafePolicyError("LUCIUS_JWT_JWKS_URL must be https, or http on loopback")


class JwtAccess:
    """`Authorization: Bearer <JWT>`, signed by a key that the issuer publishes."""

    def __init__(
        self, policy: JwtPolicy, jwks: Jwks | None = None, now: Callable[[], float] = time
    ) -> None:
        policy.check()
        self._policy = policy
        self._now = now
        self._jwks = jwks or Jwks(fetch_from(policy.jwks_url))

    async def __call__(self, request: Request) -> Caller:
        text = bearer(request)
        if not text:
            raise unauthenticated("a bearer token is needed")
        return await self.caller(text)

    async def caller(self, text: str) -> Caller:
        """Who a token speaks for. Raises the 401, or that nobody can say."""
        if len(text) > MAX_TOKEN:
            raise unauthenticated("the token is not accepted: it is too long")
        try:
            claims = self._claims(text, await self._key(text))
        except jwt.PyJWTError as error:
            raise unauthenticated(f"the token is not accepted: {_reason(error)}") from error
        except JwksUnavailableError as error:
            raise Problem("AUTHENTICATION_UNAVAILABLE") from error
        ends = int(claims["exp"]) + self._policy.leeway_seconds
        caller = caller_of(claims)
        return replace(caller, stands=lambda: self._now() < ends, ends_at=ends)

    async def _key(self, text: str) -> jwt.PyJWK:
        """The algorithm is judged before any key is looked for."""
        header = jwt.get_unverified_header(text)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._policy.algorithms:
            raise jwt.InvalidAlgorithmError("its algorithm is not allowed")
        return await self._jwks.key(key_id, algorithm)

    def _claims(self, text: str, key: jwt.PyJWK) -> dict[str, Any]:
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


def caller_of(claims: dict[str, Any]) -> Caller:
    """Roles that are not ours are passed over; no tenants claim means no tenant, `*` means all.

    A claim can hold what is no Unicode (half of a surrogate pair), and such a name is nobody's.
    """
    given = claims.get(ROLES_CLAIM)
    roles = frozenset(Role(r) for r in _roles(given) if r in Role._value2member_map_)
    tenants = frozenset(_texts(claims.get(TENANTS_CLAIM)))
    name = str(claims["sub"])
    if not all(_is_unicode(text) for text in (name, *tenants)):
        raise unauthenticated("the token is not accepted: its claims are not valid Unicode")
    return Caller(name, roles, None if "*" in tenants else tenants)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _roles(value: Any) -> list[str]:
    """A list, or words in one string as OAuth writes scopes."""
    return value.split() if isinstance(value, str) else _texts(value)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _reason(error: jwt.PyJWTError) -> str:
    """What is wrong with a token, never what is in it or in a key."""
    return str(error) if isinstance(error, _PLAIN) else "it cannot be verified"


def unauthenticated(detail: str) -> Problem:
    return Problem("UNAUTHENTICATED", detail, headers={"www-authenticate": "Bearer"})
