"""Connections that only lead outside: a name is resolved once, judged, and its judged address is dialled."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import httpcore

from lucius.core.addresses import is_public
from lucius.core.errors import EffectRefusedError
from lucius.webhooks.slots import AT_ONCE

ADDRESSES: Final = 4
"""How many addresses of one name are tried, in the resolver's order."""
SocketOptions = Iterable[
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
]
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a name; OSError where there are none at the moment."""


class AddressRefusedError(EffectRefusedError):
    """The name leads to an address that is not public, or the way there is not a network."""


_LOOKUPS: Final = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="lucius-webhook-dns")
"""A thread for each slot, started as needed: a name server that is silent holds up no other name."""


async def resolved(host: str, port: int) -> list[str]:
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects only to public addresses, and to the very address that it has checked."""

    def __init__(
        self, inner: httpcore.AsyncNetworkBackend | None = None, resolve: Resolve = resolved
    ) -> None:
        self._inner = inner or httpcore.AnyIOBackend()
        self._resolve = resolve

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
        if not all(is_public(address) for address in addresses):
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
