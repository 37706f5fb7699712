"""Sessions that somebody ended before their time: notes of the ledger, so that they stay ended.

They hold over a restart and in every process, there within `LOOK`. There is one note for each caller, and
its size is bounded: a caller who ends more than `MOST` sessions ends every session of theirs.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final

from lucius.api.problems import Problem
from lucius.core.errors import LedgerError
from lucius.core.record import record
from lucius.insight.notebook import Note, Notebook, readable
from lucius.ports.leases import LeaseStore

LOOK: Final = 5.0
"""Seconds between two looks for what other processes were told."""
OLDEST: Final = 30.0
"""Seconds after which a copy that could not be read again opens nothing: as for API keys."""
MOST: Final = 100


@record
class SignOuts:
    """Sessions of one caller: by their salt, until when each would hold; and all that began so early."""

    salts: Mapping[str, float]
    before: float
    until: float


NONE: Final = SignOuts({}, -1.0, 0.0)
"""What a damaged note says. It keeps nobody out, and is removed with the next one that is over."""


class EndedSessions:
    def __init__(self, notes: LeaseStore, now: Callable[[], float]) -> None:
        self._notebook = Notebook(notes, "ended sessions")
        self._now = now
        self._known: dict[str, SignOuts] = {}
        self._read_at = self._tried_at = float("-inf")

    def has(self, caller: str, salt: str, begun: float) -> bool:
        """As far as this process knows."""
        ended = self._known.get(_name(caller), NONE)
        return salt in ended.salts or begun <= ended.before

    async def look(self) -> None:
        """Before a session is judged. Raises the 503 where nobody can say which ones have ended."""
        now = self._now()
        if now - self._tried_at > LOOK:
            self._tried_at = now
            with suppress(LedgerError):  # the copy grows old
                self._known, self._read_at = await self._read(), now
        if now - self._read_at > OLDEST:
            raise Problem("AUTHENTICATION_UNAVAILABLE")

    async def add(self, caller: str, salt: str, until: float) -> None:
        """Raises LedgerError: it is not ended anywhere."""
        now = self._now()

        def ended(note: Note | None) -> Note:
            old = _ended(_name(caller), note) if note is not None else NONE
            salts = {each: ends for each, ends in old.salts.items() if ends > now}
            salts[salt] = until
            full = len(salts) > MOST
            return {
                "salts": {} if full else salts,
                "before": now if full else old.before,
                "until": max(until, old.until),
            }

        await self._notebook.change(_name(caller), ended)
        self._known = await self._read()
        for name in [name for name, known in self._known.items() if known.until <= now]:
            await self._notebook.change(name, lambda note: _unless_over(note, now))

    async def _read(self) -> dict[str, SignOuts]:
        notes = await self._notebook.read()
        return {name: _ended(name, note) for name, note in notes.items()}


def _ended(name: str, note: Note) -> SignOuts:
    return readable(name, note, _read, NONE)


def _read(note: Note) -> SignOuts:
    salts = {str(salt): float(ends) for salt, ends in note["salts"].items()}
    return SignOuts(salts, float(note["before"]), float(note["until"]))


def _unless_over(note: Note | None, now: float) -> Note | None:
    return note if note is not None and _ended("of a session", note).until > now else None


def _name(caller: str) -> str:
    """Names of callers may have any length and any character."""
    return sha256(caller.encode()).hexdigest()[:32]
