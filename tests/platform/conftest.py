"""A bench on a real loop, for what happens in threads and processes."""

from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from tests.platform.bench import Bench
from tests.virtual import VirtualLoop


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Threads and processes need real time: the clock of the bench is not used."""
    with closing(VirtualLoop()) as unused:
        made = Bench(unused)
        await made.open()
        yield made
        await made.close()
