"""Who is signed in: a sealed cookie that names an API key, or what a token said. It holds no secret.

A key is looked up again with every request, so that a revoked one is signed out at once. What a token
said holds until the token expires, as in the API. A session that somebody has ended opens nothing more,
whoever has its cookie: here at once, after a restart, and in other processes within seconds.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from starlette.requests import Request

from lucius.core.errors import LedgerError
from lucius.core.record import record
from lucius.http.access import unauthenticated
from lucius.http.context import Caller, Role
from lucius.http.keys import PREFIX, KeysUnavailableError, KnownKeys
from lucius.http.problems import Problem
from lucius.http.tokens import CallbackTokens
from lucius.operations.shared_records import Record, SharedRecords, readable
from lucius.ports.leases import LeaseStore

# Sessions that somebody ended before their time: notes of the ledger, so that they stay ended.
#
# They hold over a restart and in every process, there within `LOOK`. There is one note for each caller, and
# its size is bounded: a caller who ends more than `MOST` sessions ends every session of theirs.

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
    def __init__(self, records: LeaseStore, now: Callable[[], float]) -> None:
        self._records = SharedRecords(records, "ended sessions")
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

        def ended(record: Record | None) -> Record:
            old = _ended(_name(caller), record) if record is not None else NONE
            salts = {each: ends for each, ends in old.salts.items() if ends > now}
            salts[salt] = until
            full = len(salts) > MOST
            return {
                "salts": {} if full else salts,
                "before": now if full else old.before,
                "until": max(until, old.until),
            }

        await self._records.change(_name(caller), ended)
        self._known = await self._read()
        for name in [name for name, known in self._known.items() if known.until <= now]:
            await self._records.change(name, lambda record: _unless_over(record, now))

    async def _read(self) -> dict[str, SignOuts]:
        records = await self._records.read()
        return {name: _ended(name, record) for name, record in records.items()}


def _ended(name: str, record: Record) -> SignOuts:
    return readable(name, record, _read, NONE)


def _read(record: Record) -> SignOuts:
    salts = {str(salt): float(ends) for salt, ends in record["salts"].items()}
    return SignOuts(salts, float(record["before"]), float(record["until"]))


def _unless_over(record: Record | None, now: float) -> Record | None:
    return record if record is not None and _ended("of a session", record).until > now else None


def _name(caller: str) -> str:
    """Names of callers may have any length and any character."""
    return sha256(caller.encode()).hexdigest()[:32]


COOKIE: Final = "lucius_console"
MAX_COOKIE: Final = 3500
"""Browsers take 4 kB with all that is said about it."""
NOBODY: Final = "nobody needs to sign in here"


def cookie_prefix(url: str) -> str:
    """Browsers take a cookie of such a name over https only, and `__Host-` from this very host only.

    So no other host of the domain can put its own in the place of ours.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        return ""
    return "__Secure-" if parts.path.rstrip("/") else "__Host-"


class Seals:
    """Texts that a browser hands back: each with its purpose, so that none passes for another.

    `prefix` is that of the names of all cookies.
    """

    def __init__(self, tokens: CallbackTokens, prefix: str = "") -> None:
        self._tokens = tokens
        self.prefix = prefix

    def cookie_of(self, request: Request, name: str = COOKIE) -> str | None:
        return request.cookies.get(self.prefix + name)

    def close(self, purpose: str, content: Mapping[str, Any]) -> str:
        text = urlsafe_b64encode(orjson.dumps(content)).rstrip(b"=").decode()
        return f"{text}.{self._tokens.seal(f'console {purpose}:{text}')}"

    def open(self, purpose: str, given: str) -> dict[str, Any] | None:
        """None if it was not sealed here for this purpose."""
        text, _, seal = given.partition(".")
        if len(given) > MAX_COOKIE or not given.isascii():
            return None
        if not self._tokens.sealed(f"console {purpose}:{text}", seal):
            return None
        content: dict[str, Any] = orjson.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return content

    def form_token(self, request: Request) -> str:
        """Proves that a form comes from a page of this session."""
        return self._tokens.seal(f"console form:{self.cookie_of(request) or NOBODY}")

    def is_form_token(self, request: Request, given: str) -> bool:
        session = self.cookie_of(request) or NOBODY
        return given.isascii() and self._tokens.sealed(f"console form:{session}", given)


@dataclass(frozen=True, slots=True)
class Sessions:
    """`keys` is None where callers have tokens.

    `epoch` is another one in each process whose ledger forgets, so that no session outlives that process.
    """

    seals: Seals
    seconds: float
    now: Callable[[], float]
    ended: EndedSessions
    keys: KnownKeys | None = None
    epoch: str = ""

    def begin(self, caller: Caller) -> tuple[str, int]:
        """The cookie, and for how many seconds it holds."""
        begun = self.now()
        until = begun + self.seconds
        if caller.ends_at is not None:
            until = min(until, caller.ends_at)
        content: dict[str, Any] = {
            "until": until,
            "begun": begun,
            "salt": token_urlsafe(9),
            "epoch": self.epoch,
        }
        if caller.key_id is not None:
            content["key"] = caller.key_id
        else:
            content["name"] = caller.name
            content["roles"] = sorted(caller.roles)
            content["tenants"] = None if caller.tenants is None else sorted(caller.tenants)
        cookie = self.seals.close("session", content)
        if len(cookie) > MAX_COOKIE:
            raise unauthenticated("the token names too many tenants to be kept in a cookie")
        return cookie, max(0, int(until - self.now()))

    async def __call__(self, request: Request) -> Caller:
        await self.ended.look()
        content = self._content(request)
        if content is None:
            raise unauthenticated("you are not signed in, or not any more")
        until = float(content["until"])

        def stands() -> bool:
            return self._holds(content)

        if "key" in content:
            holder = await self._holder(content["key"])
            return replace(holder, stands=lambda: holder.stands() and stands())
        tenants = content["tenants"]
        return Caller(
            content["name"],
            frozenset(Role(role) for role in content["roles"]),
            None if tenants is None else frozenset(tenants),
            stands=stands,
            ends_at=until,
        )

    def _content(self, request: Request) -> dict[str, Any] | None:
        content = self.seals.open("session", self.seals.cookie_of(request) or "")
        return content if content is not None and self._holds(content) else None

    def _holds(self, content: dict[str, Any]) -> bool:
        """A cookie of an older version says neither `epoch` nor `begun`."""
        ours = content.get("epoch", "") == self.epoch and self.now() < content["until"]
        begun = content.get("begun", 0.0)
        return ours and not self.ended.has(_whose(content), content["salt"], begun)

    async def end(self, request: Request) -> None:
        """The cookie opens nothing more, and what it has opened is closed. LedgerError: it is not ended."""
        content = self._content(request)
        if content is not None:
            await self.ended.add(_whose(content), content["salt"], float(content["until"]))

    async def _holder(self, key_id: str) -> Caller:
        caller = None
        try:
            if self.keys is not None:
                await self.keys.prepare(f"{PREFIX}_{key_id}_")
                caller = self.keys.holder_of(key_id)
        except KeysUnavailableError as error:
            raise Problem("AUTHENTICATION_UNAVAILABLE") from error
        if caller is None:
            raise unauthenticated("the API key of this session was revoked or has expired")
        return caller

    async def caller_with(self, text: str) -> Caller:
        """Whose API key this is. Raises the 401."""
        caller = None
        try:
            if self.keys is not None:
                await self.keys.prepare(text.strip())
                caller = self.keys.caller_of(text.strip())
        except KeysUnavailableError as error:
            raise Problem("AUTHENTICATION_UNAVAILABLE") from error
        if caller is None:
            raise unauthenticated("this API key is not known, was revoked or has expired")
        return caller


def _whose(content: dict[str, Any]) -> str:
    return f"key {content['key']}" if "key" in content else f"caller {content['name']}"


def same(one: str, other: str) -> bool:
    """In the same time, wherever they differ."""
    return hmac.compare_digest(sha256(one.encode()).digest(), sha256(other.encode()).digest())
