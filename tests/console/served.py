"""A server with the console on a real port of loopback, and hands that move jobs from outside."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from lucius.adapters.ledgers.memory import MemoryLeases
from lucius.app.access import key_file
from lucius.app.building import build
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.http.app import create_app
from lucius.http.console.pages import ConsoleOptions, console
from lucius.http.context import Role
from tests.api.live import Live
from tests.api.world import World, context_of
from tests.security.wire import serving

ALL = tuple(Role)


@dataclass
class Served(Live):
    """Workers and clients speak to `runtime` as those of the API's tests do; browsers to `url`."""

    url: str

    def key(
        self, *roles: Role, tenants: tuple[str, ...] | None = None, name: str = "someone"
    ) -> str:
        _, text = key_file(self.runtime.settings).create(name, roles or ALL, tenants)
        return text

    def authorized(self, key: str) -> None:
        """As whom workers and clients speak."""
        self.client.headers["x-api-key"] = key


@asynccontextmanager
async def served(data: Path, **settings: str) -> AsyncIterator[Served]:
    """Settings are given without prefix, in lower case."""
    given = {f"LUCIUS_{name.upper()}": value for name, value in settings.items()}
    loaded = load_settings({"LUCIUS_DATA_DIR": str(data), **given})
    runtime: Runtime = await build(loaded)
    async with runtime.running():
        app = runtime.app()
        async with serving(app) as port:
            url = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                yield Served(client, runtime, url)
            runtime.take_no_more()
            await app.state.feeds.close()


@asynccontextmanager
async def served_world(world: World) -> AsyncIterator[str]:
    """The console over a world in memory; its address."""
    context = context_of(world)
    room = console(context, ConsoleOptions(MemoryLeases()), now=lambda: world.now.timestamp())
    app = create_app(context, [room])
    async with serving(app) as port:
        yield f"http://127.0.0.1:{port}"
        await app.state.feeds.close()
