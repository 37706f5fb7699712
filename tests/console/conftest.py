"""One browser for all tests of the console, and one loop, because a browser belongs to a loop."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.browser import chromium


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


IN_BROWSER = [pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="session")]
