"""Whose a connection on loopback is. The kernel knows: the other end is a socket of this machine.

Linux is asked by `sock_diag`, which finds one connection among any number in microseconds.
Where that is not to be had (a sandbox), the tables in `/proc/net` are read. No other system tells.
"""

import ipaddress
import os
import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple

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
