"""Who is signed in: a sealed cookie that names an API key, or what a token said. It holds no secret.

A key is looked up again with every request, so that a revoked one is signed out at once. What a token
said holds until the token expires, as in the API. A session that somebody has ended opens nothing more in
this process, whoever has its cookie; other processes know nothing of it.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from starlette.requests import Request

from lucius.api.access import unauthenticated
from lucius.api.context import Caller, Role
from lucius.api.keys import PREFIX, KeysUnavailableError, KnownKeys
from lucius.api.problems import Problem
from lucius.api.tokens import CallbackTokens

COOKIE: Final = "lucius_console"
MAX_COOKIE: Final = 3500
"""Browsers take 4 kB with all that is said about it."""
MOST_ENDED: Final = 10_000
"""Sessions that were ended before their time: beyond it, the one that would end first is forgotten."""
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
    """`keys` is None where callers have tokens."""

    seals: Seals
    seconds: float
    now: Callable[[], float]
    keys: KnownKeys | None = None
    _ended: dict[str, float] = field(default_factory=dict)
    """By the salt of a session that was ended: until when it would have held."""

    def begin(self, caller: Caller) -> tuple[str, int]:
        """The cookie, and for how many seconds it holds."""
        until = self.now() + self.seconds
        if caller.ends_at is not None:
            until = min(until, caller.ends_at)
        content: dict[str, Any] = {"until": until, "salt": token_urlsafe(9)}
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
        content = self._content(request)
        if content is None:
            raise unauthenticated("you are not signed in, or not any more")
        until, salt = float(content["until"]), content["salt"]

        def stands() -> bool:
            return self.now() < until and salt not in self._ended

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
        if content is None or content["until"] <= self.now() or content["salt"] in self._ended:
            return None
        return content

    def end(self, request: Request) -> None:
        """The cookie opens nothing more, and what it has opened is closed."""
        content = self._content(request)
        if content is None:
            return
        for salt in [salt for salt, until in self._ended.items() if until <= self.now()]:
            del self._ended[salt]
        self._ended[content["salt"]] = float(content["until"])
        if len(self._ended) > MOST_ENDED:
            del self._ended[min(self._ended, key=lambda salt: self._ended[salt])]

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


def same(one: str, other: str) -> bool:
    """In the same time, wherever they differ."""
    return hmac.compare_digest(sha256(one.encode()).digest(), sha256(other.encode()).digest())
