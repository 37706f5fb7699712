"""API keys: `lk_<id>_<secret>`. The file holds hashes only; a key is shown once, when it is made."""

import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from lucius.api.context import Caller, Role
from lucius.core.errors import LuciusError

PREFIX: Final = "lk"


class KeyFileError(LuciusError):
    """The file of API keys cannot be read or written."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """`tenants` is None for a key that may act for every tenant."""

    key_id: str
    name: str
    secret_sha256: str
    roles: tuple[str, ...]
    tenants: tuple[str, ...] | None
    created_at: str
    revoked_at: str | None = None

    def caller(self) -> Caller:
        tenants = frozenset(self.tenants) if self.tenants is not None else None
        return Caller(self.name, frozenset(Role(role) for role in self.roles), tenants)


class KeyFile:
    """Read again when it has changed, so that a revoked key stops working at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._keys: dict[str, ApiKey] = {}

    def list(self) -> list[ApiKey]:
        self._refresh()
        return list(self._keys.values())

    def create(
        self, name: str, roles: tuple[Role, ...], tenants: tuple[str, ...] | None, now: datetime
    ) -> tuple[ApiKey, str]:
        """The record, and the key itself: this is the only time that it is known."""
        self._refresh()
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        made = ApiKey(
            key_id,
            name,
            _hash(secret),
            tuple(role.value for role in roles),
            tenants,
            now.isoformat(timespec="seconds"),
        )
        self._write({**self._keys, key_id: made})
        return made, f"{PREFIX}_{key_id}_{secret}"

    def revoke(self, key_id: str, now: datetime) -> ApiKey | None:
        """None if there is no such key; revoking twice keeps the first date."""
        self._refresh()
        key = self._keys.get(key_id)
        if key is None:
            return None
        revoked = replace(key, revoked_at=key.revoked_at or now.isoformat(timespec="seconds"))
        self._write({**self._keys, key_id: revoked})
        return revoked

    def caller_of(self, text: str) -> Caller | None:
        """Who a key speaks for, or None. Takes the same time whether or not the id is known."""
        self._refresh()
        parts = text.split("_", 2)
        if len(parts) != 3 or parts[0] != PREFIX:
            return None
        key = self._keys.get(parts[1])
        expected = key.secret_sha256 if key is not None else _hash("")
        matches = hmac.compare_digest(_hash(parts[2]), expected)
        if key is None or not matches or key.revoked_at is not None:
            return None
        return key.caller()

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._keys, self._seen = {}, None
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen == self._seen:
            return
        try:
            rows = json.loads(self._path.read_text())["keys"]
            self._keys = {row["key_id"]: _key(row) for row in rows}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KeyFileError(f"{self._path} is not a file of API keys: {error}") from error
        self._seen = seen

    def _write(self, keys: dict[str, ApiKey]) -> None:
        text = json.dumps({"keys": [asdict(key) for key in keys.values()]}, indent=1)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        self._seen = None
        self._refresh()


def _hash(secret: str) -> str:
    """The secret has 256 random bits, so one round is as good as many."""
    return sha256(secret.encode()).hexdigest()


def _key(row: dict[str, object]) -> ApiKey:
    tenants, roles = row["tenants"], row["roles"]
    assert isinstance(roles, list), "roles is a list"
    return ApiKey(
        key_id=str(row["key_id"]),
        name=str(row["name"]),
        secret_sha256=str(row["secret_sha256"]),
        roles=tuple(Role(str(role)).value for role in roles),
        tenants=tuple(str(t) for t in tenants) if isinstance(tenants, list) else None,
        created_at=str(row["created_at"]),
        revoked_at=str(row["revoked_at"]) if row.get("revoked_at") else None,
    )
