"""API keys of a shared ledger, as one replica knows them: a copy that is read again and again.

A revoked key is known everywhere after `REFRESH`. A copy that could not be read again within `OLDEST`
opens nothing. A key that the copy does not have is looked for at once, but at most once in `PAUSE`, so
that guessing costs the ledger nothing.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from lucius.api.context import Caller, Role
from lucius.api.keys import KeysUnavailableError, active, caller, id_of, matching, utc_now
from lucius.core.errors import LedgerError
from lucius.ports.keys import ApiKey, KeyStore

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
