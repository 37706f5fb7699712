"""A proxy on loopback in front of a table service: it loses answers and requests, delays and throttles."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from aiohttp import ClientSession, DummyCookieJar, web
from yarl import URL

HOP: Final = ("connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding")
"""Headers that concern one connection only."""


class TableProxy:
    """`share`: the part of all requests that meet trouble, by a seed."""

    def __init__(self, upstream: str, seed: int = 1) -> None:
        self.share = 0.0
        self.met: Counter[str] = Counter()
        self.port = 0
        self._upstream = upstream
        self._random = Random(seed)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body, trouble = await request.read(), self._trouble()
        if trouble == "throttled":
            return web.Response(status=503, text="ServerBusy")
        if trouble == "never arrived":
            return _cut(request)
        if trouble == "delayed":
            await asyncio.sleep(self._random.random())
        status, headers, said = await self._forwarded(request, body)
        if trouble == "answer lost" and request.method != "GET":
            self.met["landed, answer lost"] += status < 300
            return _cut(request)
        return web.Response(status=status, headers=headers, body=said)

    def _trouble(self) -> str:
        if self._random.random() >= self.share:
            return ""
        kinds = ("answer lost", "answer lost", "never arrived", "throttled", "delayed")
        found = self._random.choice(kinds)
        self.met[found] += 1
        return found

    async def _forwarded(
        self, request: web.Request, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        given = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        url = self._upstream + request.raw_path
        async with self._session.request(
            request.method,
            URL(url, encoded=True),  # the signature covers the path as it came
            headers=given,
            data=body or None,
            skip_auto_headers=["Content-Type"],
        ) as answer:
            said = await answer.read()
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
            return answer.status, kept, said

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TableProxy"]:
        app = web.Application(client_max_size=8 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        async with ClientSession(cookie_jar=DummyCookieJar()) as self._session:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            try:
                yield self
            finally:
                await runner.cleanup()


def _cut(request: web.Request) -> web.Response:
    """The client sees a connection that breaks."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
