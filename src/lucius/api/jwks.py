"""The issuer's public keys. They are fetched beside the requests, and however many ask, never more often than
every few seconds: a token that names an unknown key must not make LUCIUS call out for it each time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

import httpx
import jwt
import orjson

from lucius.contract.addresses import without_credentials
from lucius.core.errors import LuciusError

log = logging.getLogger("lucius.access")

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
            log.warning("the issuer's keys cannot be fetched: %r", error)
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
