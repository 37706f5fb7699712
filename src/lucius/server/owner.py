"""Without authentication, only the user who runs the server is served, and root, whom nothing stops anyway.

Each connection is looked at once, when it is made. Requests pay nothing for it.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from lucius.api.context import ANYONE, Authenticate, Caller
from lucius.api.problems import Problem, problem_response
from lucius.server.connections import Connections
from lucius.server.peers import Address, uid_of
from lucius.server.protocol import BoundedProtocol

log = logging.getLogger("lucius")
OPEN: Final = "/healthz"
"""It says nothing but that the process is alive."""
ROOT: Final = 0

UserOf = Callable[[Address, Address], int | None]


class Owner:
    """Who may use this server: `uid`, and root."""

    def __init__(self, uid: int, whose: UserOf = uid_of) -> None:
        self._uid = uid
        self._whose = whose
        self._told: set[int | None] = set()

    def refusal(self, client: Sequence[Any] | None, server: Sequence[Any] | None) -> Problem | None:
        """The ends as sockets name them: host, port and more; None where there is no end any more."""
        ends = client and server and ((client[0], client[1]), (server[0], server[1]))
        found = self._whose(*ends) if ends else None
        if found in (self._uid, ROOT):
            return None
        detail = self._detail(found)
        if found not in self._told:
            self._told.add(found)
            log.warning("a connection is refused: %s", detail)
        return Problem("OTHER_USER", detail)

    def _detail(self, found: int | None) -> str:
        whose = f"user {found}" if found is not None else "a user whom the kernel does not name"
        return (
            f"this connection is of {whose}; without authentication only user {self._uid}, who runs"
            " this server, is served: set LUCIUS_AUTH=keys and give the others keys"
        )


def this_user() -> Owner:
    return Owner(os.geteuid())


def owner_only(owner: Owner) -> Authenticate:
    """For one route of a port that answers others too."""

    async def check(request: Request) -> Caller:
        if (refusal := owner.refusal(request.client, request.scope.get("server"))) is not None:
            raise refusal
        return ANYONE

    return check


class OwnerProtocol(BoundedProtocol):
    """A connection of somebody else gets one answer, whatever it asks for."""

    def __init__(self, owner: Owner, connections: Connections, **given: Any) -> None:
        super().__init__(connections, **given)
        self._owner = owner

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        client, server = (transport.get_extra_info(end) for end in ("peername", "sockname"))
        refusal = self._owner.refusal(client, server)
        if refusal is not None:
            count = partial(self._connections.refused, refusal.known.code)
            self.app = Refusing(self.app, refusal, count)


class Refusing:
    """An application for a stranger: alive or not is all that it says."""

    def __init__(self, app: Any, refusal: Problem, count: Callable[[], None]) -> None:
        self._app: ASGIApp = app
        self._refusal = refusal
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope.get("path") != OPEN:
            self._count()
            answer = problem_response(self._refusal)
        await answer(scope, receive, send)
