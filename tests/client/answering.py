"""A real server on a free port that answers as a test says."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler, port: int = 0) -> AsyncIterator[str]:
    """Its URL."""
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def lost(request: web.BaseRequest) -> web.Response:
    """The connection breaks instead of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def through(inner: httpx.AsyncClient) -> Handler:
    """Whatever an application in this process answers."""

    async def handle(request: web.BaseRequest) -> web.Response:
        answer = await inner.request(
            request.method,
            str(request.rel_url),
            content=await request.read(),
            headers={name: value for name, value in request.headers.items() if name != "Host"},
        )
        kept = {"content-type", "retry-after"}
        headers = {name: value for name, value in answer.headers.items() if name in kept}
        return web.Response(status=answer.status_code, body=answer.content, headers=headers)

    return handle
