"""The console over a world in memory, without a port: for tests that need no browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lucius.adapters.ledgers.memory import MemoryLeases
from lucius.http.access import KeyAccess
from lucius.http.app import Section, create_app
from lucius.http.console.pages import ConsoleOptions, console
from lucius.http.context import Role
from lucius.http.keys import KeyFile
from lucius.ports.leases import LeaseStore
from tests.api.world import World, context_of
from tests.console.test_orders import token_in

HOST = "http://lucius"


@dataclass
class Guarded:
    """A console whose visitors sign in with API keys. `clock` is its time."""

    world: World
    section: Section
    keys: KeyFile
    transport: httpx.ASGITransport
    clock: list[float]

    def key(self, *roles: Role, tenants: tuple[str, ...] | None = None) -> str:
        return self.keys.create("someone", roles or tuple(Role), tenants)[1]

    @asynccontextmanager
    async def visitor(self, key: str | None = None, **how: Any) -> AsyncIterator[httpx.AsyncClient]:
        """Signed in with this key, if there is one."""
        async with httpx.AsyncClient(transport=self.transport, base_url=HOST, **how) as visitor:
            if key is not None:
                token = token_in((await visitor.get("/sign-in")).text)
                await visitor.post("/sign-in", data={"key": key, "form_token": token})
            yield visitor


@asynccontextmanager
async def guarded(
    folder: Path, url: str = "", notes: LeaseStore | None = None, **options: Any
) -> AsyncIterator[Guarded]:
    world, clock = World(), [1_800_000_000.0]
    keys = KeyFile(folder / "keys.json")
    context = context_of(world, authenticate=KeyAccess(keys))
    section = console(
        context,
        ConsoleOptions(notes or MemoryLeases(), url, keys=keys, **options),
        now=lambda: clock[0],
    )
    app = create_app(context, [section])
    try:
        yield Guarded(world, section, keys, httpx.ASGITransport(app=app), clock)
    finally:
        await app.state.feeds.close()
        await world.close()
