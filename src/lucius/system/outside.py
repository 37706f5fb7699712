"""Connections that only lead outside: a name is resolved once, judged, and its judged address is dialled.

Webhooks go over them, and documents at `https://` addresses that services read.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import httpcore
import httpx

from lucius.core.addresses import is_private, is_public
from lucius.core.errors import EffectRefusedError

AT_ONCE: Final = 128
"""Names that are looked up at once."""
ADDRESSES: Final = 4
"""How many addresses of one name are tried, in the resolver's order."""
SocketOptions = Iterable[
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
]
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a name; OSError where there are none at the moment."""


class AddressRefusedError(EffectRefusedError):
    """The name leads to an address that is not public, or the way there is not a network."""


_LOOKUPS: Final = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="lucius-outside-dns")
"""Threads are started as needed: a name server that is silent holds up no other name."""


async def resolved(host: str, port: int) -> list[str]:
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects only to public addresses, and to the very address that it has checked.

    `named`: hosts that an operator has named; they may be in a private network.
    """

    def __init__(
        self,
        inner: httpcore.AsyncNetworkBackend | None = None,
        resolve: Resolve = resolved,
        named: Collection[str] = (),
    ) -> None:
        self._inner = inner or httpcore.AnyIOBackend()
        self._resolve = resolve
        self._named = frozenset(named)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in (await self._public(host, port))[:ADDRESSES]:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _public(self, host: str, port: int) -> list[str]:
        """Every address of the host; refused if any of them is not public."""
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        named = host in self._named
        if not all(is_public(each) or (named and is_private(each)) for each in addresses):
            raise AddressRefusedError(f"{host} has an address that is not public")
        return addresses

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise AddressRefusedError("a local socket is not outside")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def guarded_transport(
    backend: httpcore.AsyncNetworkBackend | None = None, context: ssl.SSLContext | None = None
) -> httpx.AsyncHTTPTransport:
    """Without a limit of connections: who uses it bounds what is under way at once."""
    context = context or httpx.create_ssl_context()
    transport = httpx.AsyncHTTPTransport(verify=context, retries=0)
    transport._pool = httpcore.AsyncConnectionPool(
        ssl_context=context,
        network_backend=backend or GuardedBackend(),
        max_connections=None,
        max_keepalive_connections=0,
    )
    return transport


def read_alike(url: str) -> httpx.URL | None:
    """As the client reads it; None if it is no URL, or names another host to those who have judged it."""
    try:
        parsed, judged = httpx.URL(url), urlsplit(url).hostname
    except (httpx.InvalidURL, ValueError):
        return None
    return parsed if parsed.raw_host.decode("ascii") == judged else None
