"""A world without a bus, and a client of its HTTP surface."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.api.world import World, client_of, context_of


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(context_of(world)) as client:
        yield client
