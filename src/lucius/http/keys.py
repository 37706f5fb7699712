"""API keys: `lk_<id>_<secret>`. What is stored are hashes; a key is shown once, when it is made.

An embedded installation keeps them in a file. Where replicas share a ledger they are in it
(`shared_keys`).
"""

import asyncio
import fcntl
import hmac
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol

from lucius.core.errors import LedgerError, LuciusError
from lucius.http.context import Caller, Role
from lucius.ports.keys import ApiKey, KeyStore
from lucius.system.machine import private_folder

PREFIX: Final = "lk"
MAX_NAME: Final = 128
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class KeysUnavailableError(LuciusError):
    """Nobody can be judged now."""


class KeyFileError(KeysUnavailableError):
    """The file of API keys cannot be read or written."""


class KeyFileExposedError(KeyFileError):
    """Others can read it, or write keys of their own into it."""


class KeyRefusedError(LuciusError):
    """Such a key is not made."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class KnownKeys(Protocol):
    """What callers are judged by. Its methods raise KeysUnavailableError."""

    async def prepare(self, text: str) -> None:
        """Before a key is judged: fetch what is needed for that."""

    def caller_of(self, text: str) -> Caller | None:
        """Who a key speaks for, or None. Takes the same time whether or not the id is known."""

    def holder_of(self, key_id: str) -> Caller | None:
        """Who the key of this id speaks for, while it may: for whoever has shown the key before."""

    async def check(self) -> None:
        """For readiness, which everyone may ask for."""


def new_key(
    name: str,
    roles: tuple[Role, ...],
    tenants: tuple[str, ...] | None,
    now: datetime,
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
        _text(now),
        expires_at=_text(expires_at) if expires_at is not None else None,
    )
    return made, f"{PREFIX}_{key_id}_{secret}"


def matching(text: str, keys: Mapping[str, ApiKey], now: datetime) -> ApiKey | None:
    """The active key that this text is. Takes the same time whether or not the id is known."""
    key = keys.get(id_of(text))
    expected = key.secret_sha256 if key is not None else _hash("")
    matches = hmac.compare_digest(_hash(text.split("_", 2)[-1]), expected)
    if key is None or not matches or key.state(now) != "active":
        return None
    return key


def active(key_id: str, keys: Mapping[str, ApiKey], now: datetime) -> ApiKey | None:
    key = keys.get(key_id)
    return key if key is not None and key.state(now) == "active" else None


def id_of(text: str) -> str:
    """Empty for what is no key."""
    parts = text.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX else ""


def caller(key: ApiKey, stands: Callable[[], bool]) -> Caller:
    tenants = frozenset(key.tenants) if key.tenants is not None else None
    roles = frozenset(Role(role) for role in key.roles)
    return Caller(key.name, roles, tenants, key.key_id, stands)


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
        made, text = new_key(name, roles, tenants, self._now(), expires_at)
        self.add(made)
        return made, text

    def add(self, key: ApiKey) -> None:
        with self._writing():
            self._write({**self._keys, key.key_id: key})

    def revoke(self, key_id: str, at: datetime | None = None) -> ApiKey | None:
        """None if there is no such key; revoking twice keeps the first date."""
        with self._writing():
            key = self._keys.get(key_id)
            if key is None or key.revoked_at is not None:
                return key
            revoked = replace(key, revoked_at=_text(at or self._now()))
            self._write({**self._keys, key_id: revoked})
            return revoked

    async def prepare(self, text: str) -> None:
        """The file is looked at whenever a key is judged."""

    def caller_of(self, text: str) -> Caller | None:
        self._refresh()
        key = matching(text, self._keys, self._now())
        return caller(key, partial(self._stands, key)) if key is not None else None

    def holder_of(self, key_id: str) -> Caller | None:
        self._refresh()
        key = active(key_id, self._keys, self._now())
        return caller(key, partial(self._stands, key)) if key is not None else None

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
            private_folder(self._path.parent)
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


class FileKeys:
    """The key file as a store, for commands that work on either."""

    def __init__(self, file: KeyFile) -> None:
        self._file = file

    async def keys(self) -> Sequence[ApiKey]:
        return self._file.list()

    async def add(self, key: ApiKey) -> None:
        self._file.add(key)

    async def revoke(self, key_id: str, at: datetime) -> ApiKey | None:
        return self._file.revoke(key_id, at)


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


# API keys of a shared ledger, as one replica knows them: a copy that is read again and again.
#
# A revoked key is known everywhere after `REFRESH`. A copy that could not be read again within `OLDEST`
# opens nothing. A key that the copy does not have is looked for at once, but at most once in `PAUSE`, so
# that guessing costs the ledger nothing.

REFRESH: Final = timedelta(seconds=5)
OLDEST: Final = timedelta(seconds=30)
PAUSE: Final = timedelta(seconds=1)


class KeysTooOldError(KeysUnavailableError):
    """The keys of the ledger could not be read for so long that none of them is trusted."""


class SharedKeys:
    def __init__(
        self,
        store: KeyStore,
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._now = now
        self._clock = clock
        self._keys: dict[str, ApiKey] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._asked = False
        self._reading = asyncio.Lock()

    async def prepare(self, text: str) -> None:
        """A copy that nobody has asked for in a while is read again, and so is one without the key."""
        unknown = bool(id_of(text)) and id_of(text) not in self._keys
        if not self._is_younger(2 * REFRESH) or (unknown and not self._has_tried_lately()):
            await self._read()

    def caller_of(self, text: str) -> Caller | None:
        return self._caller(matching(text, self._known(), self._now()))

    def holder_of(self, key_id: str) -> Caller | None:
        return self._caller(active(key_id, self._known(), self._now()))

    def _known(self) -> dict[str, ApiKey]:
        if not self._is_younger(OLDEST):
            raise KeysTooOldError("the API keys could not be read from the ledger for 30 s")
        self._asked = True
        return self._keys

    def _caller(self, key: ApiKey | None) -> Caller | None:
        return caller(key, partial(self._stands, key)) if key is not None else None

    def _stands(self, key: ApiKey) -> bool:
        self._asked = True
        current = self._keys.get(key.key_id) == key and key.state(self._now()) == "active"
        return current and self._is_younger(OLDEST)

    async def check(self) -> None:
        """Raises KeysTooOldError where the ledger is not to be reached: its own check says why."""
        if not self._is_younger(2 * REFRESH):
            await self._read()
        if not self._is_younger(OLDEST):
            raise KeysTooOldError("the API keys cannot be read from the ledger")

    async def run(self) -> None:
        """While somebody calls. Where nobody does, nothing is asked of the ledger."""
        while True:
            await asyncio.sleep(REFRESH.total_seconds())
            await self.refresh()

    async def refresh(self) -> None:
        if self._asked:
            self._asked = False
            await self._read(at_once=True)

    async def _read(self, *, at_once: bool = False) -> None:
        """One at a time. What fails leaves the copy as it is: it grows old."""
        async with self._reading:
            if not at_once and self._has_tried_lately():
                return
            began = self._tried_at = self._clock()
            try:
                found = await self._store.keys()
            except LedgerError:
                return
            self._keys = {key.key_id: key for key in found if _is_known(key)}
            self._read_at = began

    def _has_tried_lately(self) -> bool:
        return self._tried_at is not None and self._clock() - self._tried_at < PAUSE.total_seconds()

    def _is_younger(self, age: timedelta) -> bool:
        read_at = self._read_at
        return read_at is not None and self._clock() - read_at <= age.total_seconds()


def _is_known(key: ApiKey) -> bool:
    """A key with a role of a newer version opens nothing here."""
    return all(role in Role._value2member_map_ for role in key.roles)
