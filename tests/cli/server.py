"""A real HTTP server in a thread, over a world that tests move from outside."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn

from lucius.http.app import create_app
from tests.api.world import World, context_of

T = TypeVar("T")


async def nothing_pending() -> dict[str, int]:
    return {"published": 0, "pending": 0, "failed": 0}


class Server:
    def __init__(self, world: World | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.world = world or World()
        app = create_app(context_of(self.world, retry_outbox=nothing_pending))
        config = uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        await self._server.startup()
        self._started.set()
        await self._server.main_loop()
        await self._server.shutdown()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(60)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)

    @property
    def url(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something where the server runs."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


@contextmanager
def running(world: World | None = None) -> Iterator[Server]:
    server = Server(world)
    server.start()
    try:
        yield server
    finally:
        server.stop()
