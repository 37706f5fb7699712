"""Callback tokens: signed by LUCIUS, bound to one attempt of one step, worthless for anything else.

A token names its key and what it is bound to, and carries a MAC over both. So a false one is known
before anything else of its request is read. It does not expire: it outlives the lease, so that a late
result can still be recorded.
"""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

import orjson

_MAX_KEY: Final = 64
_MAX_TOKEN: Final = 4096
REMEMBERED: Final = 10_000
"""Tokens that this process minted are known at sight; the last so many, or twice as many."""


class Binding(NamedTuple):
    """The attempt that a token opens, and whose it is."""

    tenant_id: str
    job_id: str
    step_id: str
    attempt_no: int
    lease_id: str


class CallbackTokens:
    """Mints with the current key and accepts every key it knows, so keys can be rotated.

    To rotate: add the new key as `current` and keep the old one until its leases are over.
    """

    def __init__(self, keys: Mapping[str, bytes], current: str | None = None) -> None:
        if not keys:
            raise ValueError("at least one signing key is needed")
        for key_id, key in keys.items():
            if not key_id or "." in key_id:
                raise ValueError(f"a key id is not empty and has no dot: {key_id!r}")
            if len(key) < 16:
                raise ValueError(f"the key {key_id!r} is shorter than 16 bytes")
        self._keys = {key_id: _whole(key) for key_id, key in keys.items()}
        self._current = current if current is not None else next(reversed(self._keys))
        self._key = self._keys[self._current]
        self._minted: dict[str, Binding] = {}
        self._minted_before: dict[str, Binding] = {}

    def mint(
        self, tenant_id: str, job_id: str, step_id: str, attempt_no: int, lease_id: str
    ) -> str:
        binding = Binding(tenant_id, job_id, step_id, attempt_no, lease_id)
        token = _signed(self._current, self._key, binding)
        if len(self._minted) >= REMEMBERED:
            self._minted_before, self._minted = self._minted, {}
        self._minted[token] = binding
        return token

    def every(
        self, tenant_id: str, job_id: str, step_id: str, attempt_no: int, lease_id: str
    ) -> list[str]:
        """The token of an attempt under each key: one of them is the token that was minted for it."""
        binding = Binding(tenant_id, job_id, step_id, attempt_no, lease_id)
        return [_signed(key_id, key, binding) for key_id, key in self._keys.items()]

    def opened(self, token: str) -> Binding | None:
        """What the token is bound to; None if LUCIUS did not make it."""
        return self._minted.get(token) or self._minted_before.get(token) or self._checked(token)

    def verify(
        self, token: str, job_id: str, step_id: str, attempt_no: int, lease_id: str
    ) -> str | None:
        """The tenant that the token was minted for, or None if it is not bound to this attempt."""
        bound = self.opened(token)
        if bound is None or bound[1:] != (job_id, step_id, attempt_no, lease_id):
            return None
        return bound.tenant_id

    def _checked(self, token: str) -> Binding | None:
        """By its MAC: for what another process, or this one long ago, has minted."""
        text, _, given = token.rpartition(".")
        key_id, _, binding = text.partition(".")
        key = self._keys.get(key_id)
        if key is None or len(token) > _MAX_TOKEN or not token.isascii():
            return None
        if not hmac.compare_digest(given, _encoded(_mac(key, text))):
            return None
        return Binding(*json.loads(_decoded(binding)))

    def seal(self, text: str) -> str:
        """A short MAC over something that a client only hands back, such as a cursor."""
        return _encoded(_keyed(self._key, b"seal:" + text.encode())[:12])

    def sealed(self, text: str, seal: str) -> bool:
        given = seal.encode()
        return any(
            hmac.compare_digest(given, _encoded(mac[:12]).encode())
            for mac in (_keyed(key, b"seal:" + text.encode()) for key in self._keys.values())
        )


def _signed(key_id: str, key: bytes, binding: Binding) -> str:
    text = f"{key_id}.{_encoded(orjson.dumps(tuple(binding)))}"
    return f"{text}.{_encoded(_mac(key, text))}"


def _mac(key: bytes, text: str) -> bytes:
    return _keyed(key, b"callback:" + text.encode())


def _whole(key: bytes) -> bytes:
    """BLAKE2b takes 64 bytes of key. All of a longer one count by its hash, as in HMAC."""
    return key if len(key) <= _MAX_KEY else blake2b(key, digest_size=_MAX_KEY).digest()


def _keyed(key: bytes, data: bytes) -> bytes:
    """Keyed BLAKE2b: a MAC of its own, several times cheaper than HMAC, and this runs on every reply."""
    return blake2b(data, key=key, digest_size=32).digest()


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
