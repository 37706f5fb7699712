"""Turns one asynchronous test into a test on every adapter of a port that can take it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest


def on_every(
    adapters: Sequence[Any], *needs: str
) -> Callable[[Callable[[Any], Awaitable[None]]], Callable[[Any], None]]:
    """The test runs where the adapter has all that it needs, and is skipped elsewhere."""

    def decorated(body: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
        @pytest.mark.parametrize("adapter", adapters, ids=lambda adapter: adapter.name)
        def test(adapter: Any) -> None:
            missing = set(needs) - adapter.capabilities
            if missing:
                pytest.skip(f"{adapter.name} cannot: {', '.join(sorted(missing))}")
            adapter.run(body)

        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        made: Callable[[Any], None] = test
        return made

    return decorated
