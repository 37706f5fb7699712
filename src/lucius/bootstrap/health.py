"""A port of a process that has no API: probes and scrapes, or the questions of other processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.applications import Starlette

from lucius.bootstrap.listening import listen
from lucius.server.connections import Connections
from lucius.server.protocol import ALWAYS, bounded

MOST_CONNECTIONS = 64


class _Quiet(uvicorn.Server):
    """Signals are for whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def health_port(
    app: Starlette, host: str, port: int | None, *, most: int = MOST_CONNECTIONS
) -> AsyncIterator[int | None]:
    """Serve as long as it is entered; `port` None: not at all. The port is told."""
    if port is None:
        yield None
        return
    with contextlib.closing(listen(host, port)) as listener:
        config = uvicorn.Config(
            app,
            http=bounded(Connections(most, most)),
            ws="none",
            lifespan="off",
            headers=list(ALWAYS),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        server = _Quiet(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            bound: int = listener.getsockname()[1]
            yield bound
        finally:
            server.should_exit = True
            await serving
