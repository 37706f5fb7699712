"""Who is calling: API keys or OIDC JWTs, taken from the request and turned into a `Caller`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import Any, Final

import httpx
import jwt
import orjson
from starlette.requests import Request

from lucius.contract.words import without_credentials
from lucius.core.addresses import is_guarded
from lucius.core.errors import LuciusError
from lucius.http.context import Caller, Role
from lucius.http.keys import KeysUnavailableError, KnownKeys
from lucius.http.parameters import bearer
from lucius.http.problems import Problem

# The issuer's public keys. They are fetched beside the requests, and however many ask, never more often than
# every few seconds: a token that names an unknown key must not make LUCIUS call out for it each time.

jwks_log = logging.getLogger("lucius.access")

FRESH_SECONDS: Final = 300.0
"""Keys older than this are fetched again, while the old ones still serve."""
STALE_SECONDS: Final = 3600.0
"""Keys older than this no longer serve: a key that the issuer took back must not live on for ever."""
PAUSE_SECONDS: Final = 5.0
"""The least time between two fetches."""
FETCH_SECONDS: Final = 5.0
MAX_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2048
_PUBLIC: Final = frozenset(("RSA", "EC", "OKP"))

Fetch = Callable[[], Awaitable[bytes]]


class JwksUnavailableError(LuciusError):
    """The issuer's keys cannot be had at the moment, so nobody can say whether a token is good."""


class Jwks:
    def __init__(self, fetch: Fetch, clock: Callable[[], float] = monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: dict[str, dict[str, Any]] = {}
        self._made: dict[tuple[str, str], jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failed = False
        self._fetching: asyncio.Task[None] | None = None

    async def key(self, key_id: str | None, algorithm: str) -> jwt.PyJWK:
        """Raises PyJWTError if the issuer has no such key, JwksUnavailableError if that is unknown."""
        found = self._named(key_id)
        if found is None:
            await self._renewed(wait=True)
            found = self._named(key_id)
        elif self._age(self._fetched_at) >= FRESH_SECONDS:
            await self._renewed(wait=self._age(self._fetched_at) >= STALE_SECONDS)
        if self._age(self._fetched_at) >= STALE_SECONDS or (found is None and self._failed):
            raise JwksUnavailableError("the issuer's keys cannot be fetched")
        if found is None:
            raise jwt.InvalidKeyError("the issuer has no such key")
        return self._key(found, algorithm)

    def _named(self, key_id: str | None) -> str | None:
        """A token without a key id is taken where the issuer has only one key."""
        if key_id is None:
            return next(iter(self._keys)) if len(self._keys) == 1 else None
        return key_id if key_id in self._keys else None

    def _key(self, key_id: str, algorithm: str) -> jwt.PyJWK:
        made = self._made.get((key_id, algorithm))
        if made is None:
            data = self._keys[key_id]
            if data.get("alg", algorithm) != algorithm:
                raise jwt.InvalidAlgorithmError("the key is for another algorithm")
            made = self._made[key_id, algorithm] = jwt.PyJWK(data, algorithm)
        if data_bits(made) < MIN_RSA_BITS:
            raise jwt.InvalidKeyError("the key is too short")
        return made

    def _age(self, at: float | None) -> float:
        return self._clock() - at if at is not None else float("inf")

    async def _renewed(self, *, wait: bool) -> None:
        """Begin a fetch unless one has just been made; those who must wait share it."""
        if self._fetching is None and self._age(self._tried_at) >= PAUSE_SECONDS:
            self._tried_at = self._clock()
            self._fetching = asyncio.create_task(self._renew())
        if wait and self._fetching is not None:
            await asyncio.shield(self._fetching)

    async def _renew(self) -> None:
        try:
            self._keys = parsed_keys(await self._fetch())
        except (httpx.HTTPError, OSError, ValueError) as error:
            jwks_log.warning("the issuer's keys cannot be fetched: %r", error)
            self._failed = True
        else:
            self._made, self._failed, self._fetched_at = {}, False, self._clock()
        finally:
            self._fetching = None


def data_bits(key: jwt.PyJWK) -> int:
    """The size of an RSA key; the others have but one size for each algorithm."""
    return int(key.key.key_size) if key.key_type == "RSA" else MIN_RSA_BITS


def parsed_keys(text: bytes) -> dict[str, dict[str, Any]]:
    """Public signature keys by id. Raises ValueError for what is no key set; passes over other keys."""
    document = orjson.loads(text)
    rows = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError("this is not a JSON Web Key Set")
    return {
        str(row.get("kid", "")): row
        for row in rows[:MAX_KEYS]
        if isinstance(row, dict) and row.get("kty") in _PUBLIC and row.get("use", "sig") == "sig"
    }


def fetch_from(url: str) -> Fetch:
    """One bounded GET: no redirects, a whole-request deadline, and an answer of limited size."""
    context = httpx.create_ssl_context()

    async def fetch() -> bytes:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx.AsyncClient(verify=context, timeout=FETCH_SECONDS) as client,
            client.stream("GET", url, headers={"accept": "application/json"}) as answer,
        ):
            if answer.status_code != 200:
                raise ValueError(f"{without_credentials(url)} answers {answer.status_code}")
            return await bounded(answer)

    return fetch


async def bounded(answer: httpx.Response) -> bytes:
    """All of an answer of the issuer, which may have so many bytes."""
    text = bytearray()
    async for chunk in answer.aiter_bytes():
        text += chunk
        if len(text) > MAX_BYTES:
            raise ValueError(f"an answer of more than {MAX_BYTES} bytes")
    return bytes(text)


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
