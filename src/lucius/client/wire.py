"""Requests to one server: connections, timeouts, and which failures are tried again."""

import asyncio
import json
import random
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson

from lucius.client.errors import ClientError, ProblemError, UnreachableError, refusal
from lucius.contract.words import without_credentials

# Server-sent events, read line by line. By hand: no maintained library reads them from aiohttp.


class SentEvent(NamedTuple):
    """`last_id` is what a stream that breaks after this event is resumed with."""

    kind: str
    data: str
    last_id: str


async def server_sent(lines: AsyncIterable[bytes]) -> AsyncIterator[SentEvent]:
    """Each event. Comments and events without data are passed over."""
    kind, data, last_id = "", list[str](), ""
    async for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
        elif not name and not value:
            if data:
                yield SentEvent(kind, "\n".join(data), last_id)
            kind, data = "", []


_JSON: Final = {"content-type": "application/json"}
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_RETRIED: Final = frozenset((408, 429, 502, 503, 504))
_UNTOUCHED: Final = frozenset((429,))
"""Answers that say that nothing was created."""
_LONGEST_WAIT: Final = 30.0
"""Seconds. A server that asks for more patience is asked again after this."""

_SOCKET: Final = "unix:"
"""Before the path of a Unix socket, instead of a URL."""

CONNECTION_ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError)
_NEVER_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class RawAnswer(NamedTuple):
    """What the server said to a request that it took."""

    status: int
    content: bytes


class Wire:
    """The session is opened by the first request, so that a client can be made without a loop."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        retries: int,
        backoff_seconds: float,
        timeout_seconds: float,
        max_connections: int,
    ) -> None:
        self._socket = url.removeprefix(_SOCKET) if url.startswith(_SOCKET) else None
        if self._socket is None and not _names_a_server(url):
            raise ClientError(
                f"{without_credentials(url)!r} is no address of a server: it must begin with http://,"
                " https:// or unix: (--url, or LUCIUS_URL)"
            )
        self.url = url.rstrip("/")
        self._base = self.url if self._socket is None else "http://localhost"
        self.retries = retries
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._backoff = backoff_seconds
        self._timeout = timeout_seconds
        self._max_connections = max_connections
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0,
        repeatable: bool = True,
    ) -> RawAnswer:
        """The answer. What is not `repeatable` is only sent again if nothing can have happened."""
        data = None if body is None else _encoded(body)
        for attempt in range(self.retries + 1):
            last = attempt == self.retries
            try:
                async with self.exchange(
                    method, path, query=query, data=data, headers=headers, patience=patience
                ) as answer:
                    content = await answer.read()
            except CONNECTION_ERRORS as error:
                if last or not (repeatable or isinstance(error, _NEVER_SENT)):
                    raise self.unreachable(error) from error
                await asyncio.sleep(self.pause(attempt))
                continue
            if last or answer.status not in (_RETRIED if repeatable else _UNTOUCHED):
                break
            asked = min(_retry_after(answer) or 0.0, _LONGEST_WAIT)
            await asyncio.sleep(asked or self.pause(attempt))
        if not 200 <= answer.status < 300:
            raise problem(answer, content)
        return RawAnswer(answer.status, content)

    def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """One request, once. `patience`: how much longer than usual its answer may take."""
        target = f"{path}?{urlencode(query)}" if query else path
        return self._opened().request(
            method,
            self._base + target,
            data=data,
            headers=headers if data is None else {**(headers or {}), **_JSON},
            timeout=aiohttp.ClientTimeout(
                sock_connect=self._timeout, sock_read=self._timeout + patience
            ),
            allow_redirects=False,
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=_proxy_for(self.url) if self._socket is None else None,
            )
        return self._session

    def _connector(self) -> aiohttp.BaseConnector:
        if self._socket is not None:
            return aiohttp.UnixConnector(self._socket, limit=self._max_connections)
        return aiohttp.TCPConnector(limit=self._max_connections)

    def pause(self, attempt: int) -> float:
        return self._backoff * 2.0 ** min(attempt, 6) * random.uniform(0.5, 1.0)

    def unreachable(self, error: BaseException) -> UnreachableError:
        return UnreachableError(f"no answer from {without_credentials(self.url)}: {_reason(error)}")

    def misread(self, error: ValueError) -> ClientError:
        """Whatever answered, answered something else than a LUCIUS of this version would."""
        at = without_credentials(self.url)
        return ClientError(
            f"{at} answers, but it is not LUCIUS, or another version: {_first(error)}"
        )


def _first(error: ValueError) -> str:
    """The first thing that is wrong. pydantic has a list; it is not imported for that."""
    listed = getattr(error, "errors", None)
    if listed is None:
        return str(error)
    first = listed(include_url=False, include_input=False)[0]
    place = "/".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def _reason(error: BaseException) -> str:
    """Why there was no answer, without what only this program needs to know."""
    if isinstance(getattr(error, "os_error", error), ConnectionRefusedError):
        return "the connection was refused"
    return str(error) or type(error).__name__


def _proxy_for(url: str) -> str | None:
    """As the environment says (HTTPS_PROXY, NO_PROXY). Asked once: aiohttp would look at every request."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _names_a_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def problem(answer: aiohttp.ClientResponse, content: bytes) -> ProblemError:
    """The error for a refusal, also for one by another server in between, which has other words."""
    try:
        document = orjson.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        text = content[:500].decode(errors="replace")
        document = {"code": f"HTTP_{answer.status}", "detail": text}
    return refusal(answer.status, document, _retry_after(answer))


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def _encoded(body: Mapping[str, Any]) -> bytes:
    """By orjson; where that would refuse a number, or write NaN as null, by the standard library.

    A number that is too large is for the server to refuse, which has a better message.
    """
    try:
        data = orjson.dumps(body)
    except TypeError:
        data = b"null"
    return _ENCODER.encode(body).encode() if b"null" in data else data
