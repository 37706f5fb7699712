"""Turns one asynchronous test into a test on every adapter of a port that can take it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest


def on_every(
    adapters: Sequence[Any], *needs: str
) -> Callable[[Callable[[Any], Awaitable[None]]], Callable[[Any], None]]:
    """The test runs on the adapters that have all that it needs."""
    able = [adapter for adapter in adapters if set(needs) <= adapter.capabilities]
    assert able, f"no adapter has {needs}"

    def decorated(body: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
        @pytest.mark.parametrize("adapter", able, ids=lambda adapter: adapter.name)
        def test(adapter: Any) -> None:
            adapter.run(body)

        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        made: Callable[[Any], None] = test
        return made

    return decorated
