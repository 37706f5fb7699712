"""Without authentication, only the user who runs the server is served, and root, whom nothing stops anyway.

Each connection is looked at once, when it is made. Requests pay nothing for it.
"""

import asyncio
import ipaddress
import logging
import os
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from lucius.http.context import ANYONE, Authenticate, Caller
from lucius.http.limits import Connections
from lucius.http.problems import Problem, problem_response
from lucius.http.server import BoundedProtocol

# Whose a connection on loopback is. The kernel knows: the other end is a socket of this machine.
#
# Linux is asked by `sock_diag`, which finds one connection among any number in microseconds.
# Where that is not to be had (a sandbox), the tables in `/proc/net` are read. No other system tells.

Address = tuple[str, int]

_ALIVE: Final = (1, 4, 5)
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2: a client that has connected, and may have sent all it will."""
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ANY_STATE: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("=IHHII")
_ASKED: Final = struct.Struct("=BBBBI")
_PORTS: Final = struct.Struct("!HH")
_UNBOUND: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""On any interface, whatever the socket's cookie is."""
_OWNER: Final = struct.Struct("=II")
_STATE_AT: Final = _HEADER.size + 1
_OWNER_AT: Final = _HEADER.size + 4 + 48 + 12
_TABLES: Final = Path("/proc/net")


class Peer(NamedTuple):
    state: int
    uid: int
    inode: int

    def owner(self) -> int | None:
        """A socket that its process has closed has no inode, and says 0 (root) for everyone."""
        return self.uid if self.inode and self.state in _ALIVE else None


def uid_of(client: Address, server: Address) -> int | None:
    """The user whose process holds the client's end. None: nobody does any more, or nobody can tell."""
    ends = _plain(client), _plain(server)
    try:
        found = by_diagnosis(*ends)
    except (OSError, AttributeError):  # not every system has sockets of this kind
        found = None
    if found is None:
        found = by_table(*ends)
    return found.owner() if found is not None else None


def _plain(address: Address) -> Address:
    """An IPv4 address that a socket of IPv6 shows as `::ffff:...` is still one."""
    ip = ipaddress.ip_address(address[0].partition("%")[0])
    return str(getattr(ip, "ipv4_mapped", None) or ip), address[1]


def by_diagnosis(client: Address, server: Address) -> Peer | None:
    """One question to the kernel about one connection."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = (socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (client, server))
    ports = _PORTS.pack(client[1], server[1])
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
    body = b"".join([asked, ports, *ends, _UNBOUND])
    head = _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.sendto(head + body, (0, 0))
        answer = kernel.recv(4096, socket.MSG_DONTWAIT)  # it is there when the question is sent
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    return Peer(answer[_STATE_AT], *_OWNER.unpack_from(answer, _OWNER_AT))


def by_table(client: Address, server: Address, tables: Path = _TABLES) -> Peer | None:
    """A client may have reached an IPv4 address from a socket of IPv6: it is in the other table."""
    for name, mapped in (("tcp", False), ("tcp6", True)):
        if ":" in client[0] and not mapped:
            continue
        wanted = f" {_hex(client, mapped)} {_hex(server, mapped)} ".encode()
        try:
            with (tables / name).open("rb") as rows:
                found = next((row.split() for row in rows if wanted in row), None)
        except OSError:
            continue
        if found is not None:
            return Peer(int(found[3], 16), int(found[7]), int(found[9]))
    return None


def _hex(address: Address, wide: bool) -> str:
    """As the tables have it: words of 32 bits in the order of this machine."""
    ip = ipaddress.ip_address(address[0])
    packed = ip.packed
    if wide and ip.version == 4:
        packed = b"\0" * 10 + b"\xff\xff" + packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


def known_here() -> bool:
    """Whether this system tells whose a connection is: asked about one of our own."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        return uid_of(client.getsockname(), listener.getsockname()) == os.geteuid()


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
