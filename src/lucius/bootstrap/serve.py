"""`lucius up` and `lucius orchestrator`: one port, ready when `/readyz` answers, drained on SIGTERM."""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import uvicorn

from lucius.bootstrap.runtime import Runtime, build
from lucius.core.errors import LuciusError
from lucius.platform import Service
from lucius.server.connections import Connections, affordable
from lucius.server.protocol import ALWAYS, bounded
from lucius.server.slow_clients import SlowClients
from lucius.settings import Settings

log = logging.getLogger("lucius")
BACKLOG: Final = 2048
COLLECT: Final = (50_000, 20, 50)
DRAIN_SECONDS: Final = 10


class Server(uvicorn.Server):
    """Ends by returning, so that what runs beside it can be drained in order.

    `ready` is called once requests are taken; `ending` first of all at the end: it answers the
    requests that only wait.
    """

    ticks_a_look = 10
    """Ten ticks are a second; so often it looks for slow clients."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        ending: Callable[[], Awaitable[None]],
        slow: SlowClients,
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._ending = ending
        self._slow = slow

    async def on_tick(self, counter: int) -> bool:
        if counter % self.ticks_a_look == 0:
            self._slow.sweep(self.server_state.connections)
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._ending()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class UnsafeAddressError(LuciusError):
    """Authentication is off, and the address can be reached from elsewhere."""


def check_address(settings: Settings, host: str) -> None:
    """Without authentication only loopback is listened on."""
    if settings.auth == "none" and not is_loopback(host):
        raise UnsafeAddressError(
            f"{host} can be reached from other machines and authentication is off: "
            "set LUCIUS_AUTH=keys or jwt, or listen on 127.0.0.1"
        )


class NoPublicUrlError(LuciusError):
    """It listens everywhere, and nobody has said under which name it is called."""


def check_callable(address: str, bound: str) -> None:
    """Directives name the URLs that workers answer to: those of every interface lead nowhere."""
    ip = ipaddress.ip_address(bound.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None) or ip
    if mapped.is_unspecified:
        raise NoPublicUrlError(
            f"{address} listens on every interface, but is no address that workers could call back:"
            " set LUCIUS_PUBLIC_URL to the URL under which they reach this server"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unheard(url: str) -> None:
    """Nobody asked to be told."""


async def serve(
    settings: Settings,
    *,
    host: str,
    port: int,
    services: Sequence[Service] = (),
    reconciles: bool = True,
    ready: Callable[[str], None] = _unheard,
) -> None:
    """Run until SIGINT or SIGTERM. The port is taken first, so that two servers cannot both start.

    `ready` is told the URL once requests are answered.
    """
    check_address(settings, host)
    with contextlib.closing(_listen(host, port)) as listener:
        address = _address(host, listener)
        if not settings.public_url:
            check_callable(address, listener.getsockname()[0])
            settings = replace(settings, public_url=address)
        runtime = await build(settings, services, reconciles=reconciles)
        await _serve_on(listener, runtime, lambda: _tell(address, ready))


def _tell(address: str, ready: Callable[[str], None]) -> None:
    log.info("listening on %s", address)
    ready(address)


async def _serve_on(listener: socket.socket, runtime: Runtime, ready: Callable[[], None]) -> None:
    app = runtime.app()

    async def ending() -> None:
        runtime.end_waits()
        await app.state.feeds.close()

    settings = runtime.settings
    connections = Connections(
        affordable(settings.max_connections), settings.max_connections_per_address
    )
    config = uvicorn.Config(
        app,
        http=bounded(connections),
        ws="none",
        headers=list(ALWAYS),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    slow = SlowClients(
        settings.request_head_timeout,
        settings.request_body_timeout,
        settings.unread_answer_timeout,
    )
    async with runtime.running():
        settle_collector()
        await Server(config, ready, ending, slow).serve(sockets=[listener])


def settle_collector() -> None:
    """Aggregates are values without cycles: counting references frees them, so look for cycles rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _address(host: str, listener: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise LuciusError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.listen(BACKLOG)
    return listener
