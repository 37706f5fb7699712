"""API keys: `lk_<id>_<secret>`. The file holds hashes only; a key is shown once, when it is made."""

import fcntl
import hmac
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from lucius.api.context import Caller, Role
from lucius.core.errors import LuciusError

PREFIX: Final = "lk"
MAX_NAME: Final = 128
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class KeyFileError(LuciusError):
    """The file of API keys cannot be read or written."""


class KeyFileExposedError(KeyFileError):
    """Others can read it, or write keys of their own into it."""


class KeyRefusedError(LuciusError):
    """Such a key is not made."""


def utc_now() -> datetime:
    return datetime.now(UTC)


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
    expires_at: str | None = None

    def caller(self, stands: Callable[[], bool]) -> Caller:
        tenants = frozenset(self.tenants) if self.tenants is not None else None
        roles = frozenset(Role(role) for role in self.roles)
        return Caller(self.name, roles, tenants, self.key_id, stands)

    def state(self, now: datetime) -> str:
        if self.revoked_at is not None:
            return "revoked"
        expired = self.expires_at is not None and datetime.fromisoformat(self.expires_at) <= now
        return "expired" if expired else "active"


class KeyFile:
    """Read again when it has changed, so that a revoked key stops working at once."""

    def __init__(self, path: Path, now: Callable[[], datetime] = utc_now) -> None:
        self._path = path
        self._now = now
        self._seen: tuple[int, int, int, int] | None = None
        self._keys: dict[str, ApiKey] = {}

    def list(self) -> list[ApiKey]:
        self._refresh()
        return list(self._keys.values())

    def create(
        self,
        name: str,
        roles: tuple[Role, ...],
        tenants: tuple[str, ...] | None,
        expires_at: datetime | None = None,
    ) -> tuple[ApiKey, str]:
        """The record, and the key itself: this is the only time that it is known."""
        _check(name, roles, tenants)
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        made = ApiKey(
            key_id,
            name,
            _hash(secret),
            tuple(dict.fromkeys(role.value for role in roles)),
            tuple(dict.fromkeys(tenants)) if tenants is not None else None,
            _text(self._now()),
            expires_at=_text(expires_at) if expires_at is not None else None,
        )
        with self._writing():
            self._write({**self._keys, key_id: made})
        return made, f"{PREFIX}_{key_id}_{secret}"

    def revoke(self, key_id: str) -> ApiKey | None:
        """None if there is no such key; revoking twice keeps the first date."""
        with self._writing():
            key = self._keys.get(key_id)
            if key is None or key.revoked_at is not None:
                return key
            revoked = replace(key, revoked_at=_text(self._now()))
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
        if key is None or not matches or key.state(self._now()) != "active":
            return None
        return key.caller(partial(self._stands, key))

    def holder_of(self, key_id: str) -> Caller | None:
        """Who the key of this id speaks for, while it may: for whoever has shown the key before."""
        self._refresh()
        key = self._keys.get(key_id)
        if key is None or key.state(self._now()) != "active":
            return None
        return key.caller(partial(self._stands, key))

    def _stands(self, key: ApiKey) -> bool:
        """Whether the key opens what it opened before. In a file that is not trusted, none does."""
        try:
            self._refresh()
        except KeyFileError:
            return False
        return self._keys.get(key.key_id) == key and key.state(self._now()) == "active"

    async def check(self) -> None:
        """For readiness, which everyone may ask for: what is wrong with the file, not where it lies."""
        try:
            self._refresh()
        except KeyFileExposedError:
            raise KeyFileError(f"{self._path.name} is open to others: chmod 600 it") from None
        except KeyFileError:
            raise KeyFileError(f"{self._path.name} cannot be read; the log says why") from None

    def _refresh(self) -> None:
        """Raises KeyFileError, and then again each time, until the file is in order."""
        before, self._seen = self._seen, None
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode)
            if seen == before:
                self._seen = seen
                return
            if status.st_mode & OTHERS:
                raise KeyFileExposedError(
                    f"{self._path} can be read or written by other users (its mode is"
                    f" {status.st_mode & 0o777:o}), so its keys are not used: chmod 600 it, and look"
                    " with `lucius keys list` whether all of them are yours"
                )
            rows = json.loads(self._path.read_text())["keys"]
            self._keys = {row["key_id"]: _key(row) for row in rows}
        except FileNotFoundError:
            self._keys = {}
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KeyFileError(f"{self._path} is not a file of API keys: {error}") from error
        self._seen = seen

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time, who begins with what the last one wrote."""
        try:
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            lock = os.open(self._path.with_name(f"{self._path.name}.lock"), _LOCK_FLAGS, 0o600)
        except OSError as error:
            raise KeyFileError(f"{self._path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._refresh()
            yield
        finally:
            os.close(lock)

    def _write(self, keys: dict[str, ApiKey]) -> None:
        """The new file replaces the old one whole; only its owner may read it."""
        text = json.dumps({"keys": [asdict(key) for key in keys.values()]}, indent=1)
        draft = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise KeyFileError(f"{self._path} cannot be written: {error.strerror}") from error
        self._seen = None
        self._refresh()


_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


def _check(name: str, roles: tuple[Role, ...], tenants: tuple[str, ...] | None) -> None:
    for what, text in (("name", name), *(("tenant", tenant) for tenant in tenants or ())):
        if not text.strip() or len(text) > MAX_NAME or not text.isprintable():
            raise KeyRefusedError(f"a {what} has 1 to {MAX_NAME} printable characters: {text!r}")
    if not roles:
        raise KeyRefusedError("a key needs at least one role")
    if tenants is not None and not tenants:
        raise KeyRefusedError("a key is bound to at least one tenant, or to none at all")


def _hash(secret: str) -> str:
    """The secret has 256 random bits, so one round is as good as many."""
    return sha256(secret.encode("utf-8", "replace")).hexdigest()


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _key(row: dict[str, Any]) -> ApiKey:
    """Raises ValueError, KeyError or TypeError: what is not understood opens nothing."""
    tenants, roles = row["tenants"], row["roles"]
    if not isinstance(roles, list) or not (tenants is None or isinstance(tenants, list)):
        raise ValueError("roles is a list, and tenants is a list or null")
    expires_at = row.get("expires_at")
    if expires_at is not None and datetime.fromisoformat(expires_at).tzinfo is None:
        raise ValueError("expires_at names a time zone")
    return ApiKey(
        key_id=str(row["key_id"]),
        name=str(row["name"]),
        secret_sha256=str(row["secret_sha256"]),
        roles=tuple(Role(str(role)).value for role in roles),
        tenants=tuple(str(tenant) for tenant in tenants) if tenants is not None else None,
        created_at=str(row["created_at"]),
        revoked_at=str(row["revoked_at"]) if row.get("revoked_at") else None,
        expires_at=expires_at,
    )
