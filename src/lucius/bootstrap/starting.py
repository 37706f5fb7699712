"""The start of a process over storage and a bus that others run: what is away is waited for.

Its port answers from the beginning: alive, not ready. What no waiting helps against ends the process: bad
settings, a ledger that cannot be read, the bus of another deployment.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from lucius.api.problems import Problem, problem_response
from lucius.api.routing import json_response
from lucius.core.errors import (
    BusUnavailableError,
    ConfigUnavailableError,
    LedgerCorruptError,
    LedgerUnavailableError,
    LuciusError,
    OtherDeploymentError,
    WorkflowsUnavailableError,
    WorkspaceError,
    WorkspaceRefusedError,
)
from lucius.server.owner import OPEN

T = TypeVar("T")
log = logging.getLogger("lucius")
AWAY: Final = (
    BusUnavailableError,
    ConfigUnavailableError,
    LedgerUnavailableError,
    WorkflowsUnavailableError,
    WorkspaceError,
)
FOR_GOOD: Final = (LedgerCorruptError, OtherDeploymentError, WorkspaceRefusedError)
PAUSES: Final = (1.0, 2.0, 5.0, 10.0)
"""Seconds between two attempts; the last one again and again."""


class Starting:
    """What a port serves. Until `app` is set it says that the process is alive, and not ready."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.app or _meanwhile(scope))(scope, receive, send)


def _meanwhile(scope: Scope) -> ASGIApp:
    if scope.get("path") == OPEN:
        return json_response({"status": "ok"})
    return problem_response(
        Problem("NOT_READY", "the process waits for what it needs to start; its log says for what")
    )


async def entered(
    stack: AsyncExitStack,
    make: Callable[[], AbstractAsyncContextManager[T]],
    stopping: asyncio.Event,
) -> T | None:
    """Enter what `make` makes, again and again while something is away. None: told to stop meanwhile."""
    attempts, told = 0, ""
    while not stopping.is_set():
        try:
            return await stack.enter_async_context(make())
        except AWAY as error:
            if isinstance(error, FOR_GOOD):
                raise
            told = _tell(error, told)
        pause = PAUSES[min(attempts, len(PAUSES) - 1)]
        attempts += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stopping.wait()
    return None


def _tell(error: LuciusError, told: str) -> str:
    """Each reason once, while it stays the same."""
    if str(error) != told:
        log.warning("not ready, and waiting: %s", error)
    return str(error)
