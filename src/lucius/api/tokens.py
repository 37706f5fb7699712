"""Callback tokens: signed by LUCIUS, bound to one attempt of one step, worthless for anything else.

A token names its key and its tenant and carries a MAC over the whole binding. It does not expire:
it outlives the lease, so that a late result can still be recorded.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

_MAX_KEY: Final = 64
_MAX_TOKEN: Final = 1024
REMEMBERED: Final = 10_000
"""Tokens that this process minted are known at sight; the last so many, or twice as many."""

Binding = tuple[str, str, int, str]
"""Job, step, attempt, lease."""


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
        self._minted: dict[str, tuple[str, Binding]] = {}
        self._minted_before: dict[str, tuple[str, Binding]] = {}

    def mint(
        self, tenant_id: str, job_id: str, step_id: str, attempt_no: int, lease_id: str
    ) -> str:
        binding = (job_id, step_id, attempt_no, lease_id)
        mac = _mac(self._key, tenant_id, *binding)
        token = f"{self._current}.{_encoded(tenant_id.encode())}.{_encoded(mac)}"
        if len(self._minted) >= REMEMBERED:
            self._minted_before, self._minted = self._minted, {}
        self._minted[token] = (tenant_id, binding)
        return token

    def verify(
        self, token: str, job_id: str, step_id: str, attempt_no: int, lease_id: str
    ) -> str | None:
        """The tenant that the token was minted for, or None if it is not bound to this attempt."""
        binding = (job_id, step_id, attempt_no, lease_id)
        known = self._minted.get(token) or self._minted_before.get(token)
        if known is not None:
            return known[0] if known[1] == binding else None
        return self._checked(token, binding)

    def _checked(self, token: str, binding: Binding) -> str | None:
        """By its MAC: for what another process, or this one long ago, has minted."""
        parts = token.split(".")
        if len(parts) != 3 or len(token) > _MAX_TOKEN:
            return None
        key = self._keys.get(parts[0])
        if key is None:
            return None
        try:
            tenant_id = _decoded(parts[1]).decode()
            given = _decoded(parts[2])
        except (Base64Error, ValueError):
            return None
        expected = _mac(key, tenant_id, *binding)
        return tenant_id if hmac.compare_digest(given, expected) else None

    def seal(self, text: str) -> str:
        """A short MAC over something that a client only hands back, such as a cursor."""
        return _encoded(_keyed(self._key, b"seal:" + text.encode())[:12])

    def sealed(self, text: str, seal: str) -> bool:
        given = seal.encode()
        return any(
            hmac.compare_digest(given, _encoded(mac[:12]).encode())
            for mac in (_keyed(key, b"seal:" + text.encode()) for key in self._keys.values())
        )


def _mac(
    key: bytes, tenant_id: str, job_id: str, step_id: str, attempt_no: int, lease_id: str
) -> bytes:
    """Each field is preceded by its length: no two bindings give the same text."""
    text = (
        f"callback:{len(tenant_id)}:{tenant_id}{len(job_id)}:{job_id}"
        f"{len(step_id)}:{step_id}{attempt_no}:{len(lease_id)}:{lease_id}"
    )
    return _keyed(key, text.encode())


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
