"""Turns one asynchronous test into a test on every adapter of a port that can take it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

SERVER = "server"
"""It needs a server, which the suite starts. `make test-fast` leaves it out."""


def on_every(
    adapters: Sequence[Any], *needs: str
) -> Callable[[Callable[[Any], Awaitable[None]]], Callable[[Any], None]]:
    """The test runs on the adapters that have all that it needs."""
    able = [adapter for adapter in adapters if set(needs) <= adapter.capabilities]
    assert able, f"no adapter has {needs}"

    def decorated(body: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
        @pytest.mark.parametrize("adapter", params(able))
        def test(adapter: Any) -> None:
            adapter.run(body)

        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        made: Callable[[Any], None] = test
        return made

    return decorated


def params(adapters: Sequence[Any]) -> list[Any]:
    return [
        pytest.param(
            adapter,
            id=adapter.name,
            marks=[pytest.mark.slow] if SERVER in adapter.capabilities else [],
        )
        for adapter in adapters
    ]
