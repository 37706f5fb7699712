"""`lucius up` and `lucius orchestrator`: one port, ready when `/readyz` answers, drained on SIGTERM."""

import asyncio
import contextlib
import ipaddress
import logging
import shlex
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from functools import partial
from math import ceil
from typing import Any, Final

import uvicorn
from prometheus_client import CollectorRegistry, ProcessCollector

from lucius.app.building import build, remote_invoker, running
from lucius.app.health import health_app, health_port, serving
from lucius.app.lifecycle import BACKLOG, LOOPBACK, Ending, listen, settle_collector
from lucius.app.runtime import Runtime
from lucius.app.services import PACKAGED_SERVICES
from lucius.app.settings import Settings
from lucius.app.starting import Starting, doers_in, entered, here, warn_unreached
from lucius.app.temporal import of_temporal, place_of
from lucius.contract import DEFAULT_URL
from lucius.core.errors import LuciusError
from lucius.core.plan import OUTBOX, TEMPORAL
from lucius.http.invoker import invoker_app
from lucius.http.limits import Connections, affordable
from lucius.http.owner import OwnerProtocol, known_here, this_user
from lucius.http.server import ALWAYS, BoundedProtocol, SlowClients, SweptServer, bounded
from lucius.platform import Service
from lucius.ports.config import Catalog

log = logging.getLogger("lucius")
SOCKET_FILE: Final = "lucius.sock"
CONNECTIONS: Final = 2000
"""HTTP connections in all; a few more are kept for health checks and operators."""
PER_ADDRESS: Final = 1000
"""HTTP connections of one address (IPv6: of one /64); behind a proxy, those of the proxy."""
HEAD_TIME: Final = timedelta(seconds=10)
BODY_TIME: Final = timedelta(seconds=30)
UNREAD_TIME: Final = timedelta(seconds=30)
"""Time to send the head and the body of a request, and time in which a client reads nothing of its answer."""


class Server(SweptServer):
    """Ends by returning, so that what runs beside it can be drained in order.

    `ready` is called once requests are taken; `ending` first of all at the end: it answers the
    requests that only wait. `private` is a Unix socket beside the port: who may open it, may call.
    Signals are for whoever runs it: see `Ending`.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        ending: Callable[[], Awaitable[None]],
        slow: SlowClients,
        connections: Connections,
        private: socket.socket | None = None,
    ) -> None:
        super().__init__(config, slow)
        self._connections = connections
        self._private = private
        self._ready = ready
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._private is not None:
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(self._unchecked, sock=self._private)
            self.servers.append(server)
        self._ready()

    def _unchecked(self) -> BoundedProtocol:
        return BoundedProtocol(
            self._connections, self.config, self.server_state, self.lifespan.state
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._ending()
        await super().shutdown(sockets)


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
    """For callers that do not want to know when the server is ready."""


async def serve(
    settings: Settings,
    *,
    host: str,
    port: int,
    services: Sequence[Service] = (),
    apart: Sequence[str] | None = None,
    reconciles: bool = True,
    ready: Callable[[str], None] = _unheard,
) -> None:
    """Run until SIGINT or SIGTERM. The port is taken first, so that two servers cannot both start.

    `apart`: the names of the services, for a process of their own. `ready` is told the URL once requests are
    answered.
    """
    check_address(settings, host)
    with contextlib.closing(listen(host, port)) as listener:
        address = _address(host, listener)
        if not settings.public_url:
            check_callable(address, listener.getsockname()[0])
            settings = settings.model_copy(update={"public_url": address})
        page = (settings.console_url or address).rstrip("/")
        if not reconciles:
            await _serve_when_it_can(
                settings, listener, lambda runtime: _tell(address, page, runtime, ready)
            )
            return
        runtime = await build(settings, services, apart=apart)
        named = [each for each in services if not isinstance(each, PACKAGED_SERVICES)]
        warn_unreached(named, doers_in(runtime.config.catalog()), here(settings))
        tell = partial(_tell, address, page, runtime, ready)
        await _serve_on(listener, runtime, runtime.running(), tell)


async def _serve_when_it_can(
    settings: Settings, listener: socket.socket, ready: Callable[[Runtime], None]
) -> None:
    """The API alone, over storage and a bus that others run: while one of them is away, it is not ready."""
    stopping, make = asyncio.Event(), partial(running, settings, reconciles=False)
    async with AsyncExitStack() as stack:
        with Ending(settings.drain).listening(stopping.set):
            async with serving(Starting(), listener.dup()):
                runtime = await entered(stack, make, stopping)
        if runtime is not None and not stopping.is_set():
            await _serve_on(listener, runtime, stack.pop_all(), partial(ready, runtime))


def _tell(address: str, page: str, runtime: Runtime, ready: Callable[[str], None]) -> None:
    """What somebody who has just started it wants to know; last of all, what to try."""
    log.info("listening on %s", address)
    names = ", ".join(service.name for service in runtime.services) or "none"
    log.info("services: %s; data directory: %s", names, runtime.settings.data_dir.resolve())
    log.info("the console is at %s/ and the API is described at %s/docs", page, page)
    if (command := first_command(address, runtime.services, runtime.config.catalog())) is not None:
        log.info("try next, in another terminal: %s", command)
    ready(address)


def first_command(address: str, services: Sequence[Service], catalog: Catalog) -> str | None:
    """A job that the services of this process can do, if there is one."""
    here = {service.name for service in services}
    for request_type, protocol in catalog.protocols.items():
        if {step.service for step in protocol.steps} <= here:
            url = "" if address == DEFAULT_URL else f" --url {address}"
            return f"lucius submit --type {shlex.quote(request_type)} --input FILE --wait{url}"
    return None


@contextlib.contextmanager
def _private_socket(settings: Settings) -> Iterator[socket.socket | None]:
    """`lucius.sock` in the data directory, which only its owner can enter."""
    path = settings.data_dir / SOCKET_FILE
    if settings.auth != "none":
        yield None
        return
    if not known_here():
        log.warning("this system does not say whose a connection is: call %s instead", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as private:
        try:
            path.unlink(missing_ok=True)
            private.bind(str(path))
        except OSError as error:
            log.warning("there is no Unix socket beside the port: %s: %s", path, error)
            yield None
            return
        path.chmod(0o600)
        private.listen(BACKLOG)
        yield private
    path.unlink(missing_ok=True)


def _protocol(settings: Settings, connections: Connections) -> Any:
    """Without authentication a connection speaks for its user, so it must be the one who runs this."""
    if settings.auth == "none":
        return partial(OwnerProtocol, this_user(), connections)
    return bounded(connections)


async def _serve_on(
    listener: socket.socket,
    runtime: Runtime,
    running: AbstractAsyncContextManager[object],
    ready: Callable[[], None],
) -> None:
    """`running` starts the runtime, or only ends it where it runs already."""
    app, settings = runtime.app(), runtime.settings

    async def ending() -> None:
        runtime.take_no_more()
        runtime.end_waits()
        await app.state.feeds.close()

    connections = Connections(affordable(CONNECTIONS), PER_ADDRESS)
    connections.instruments.register(runtime.registry)
    config = uvicorn.Config(
        app,
        http=_protocol(settings, connections),
        ws="none",
        headers=list(ALWAYS),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=ceil(settings.drain.total_seconds()),
    )
    slow = SlowClients(HEAD_TIME, BODY_TIME, UNREAD_TIME)
    signals = Ending(settings.drain)

    with _private_socket(settings) as private:
        server = Server(config, ready, ending, slow, connections, private)

        def begin_end() -> None:
            server.should_exit = True
            if runtime.started:
                runtime.take_no_more()

        with signals.listening(begin_end):
            async with running:
                settle_collector()
                await server.serve(sockets=[listener])
            signals.leave_behind(runtime.left_behind)


def _address(host: str, listener: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


# `lucius orchestrator`, `reconciler`, `invoker`, `worker`: parts of `lucius up` as processes of their own.
#
# They meet only in the ledger and on the bus, so both must be shared.

MOST_CALLERS: Final = 4096
"""Connections of workers and orchestrators to one invoker."""


class TemporalOffError(LuciusError):
    """A process of the Temporal engine, where jobs do not run on Temporal."""


class NotSharedError(LuciusError):
    """Processes of their own would not see each other's work."""


def check_shared(settings: Settings, verb: str) -> None:
    """Refuse by name what would not work, before anything is opened."""
    reasons: list[str] = []
    if not settings.shared:
        reasons.append(
            f"LUCIUS_STORAGE_BACKEND={settings.storage_backend}: {settings.ledger.alone}"
        )
    if settings.bus_backend == "memory":
        reasons.append("LUCIUS_BUS_BACKEND=memory: it lives inside one process")
    if reasons:
        raise NotSharedError(
            f"`lucius {verb}` needs a ledger and a bus that processes share.\n"
            + "\n".join(reasons)
            + "\n`lucius up` runs everything in one process."
        )


async def reconcile(
    settings: Settings,
    *,
    ready: Callable[[], None],
    health_host: str = LOOPBACK,
    health: int | None = None,
) -> None:
    """Dispatcher, sweepers and reply consumers, without the API. Until SIGINT or SIGTERM."""
    starting, stopping = Starting(), asyncio.Event()
    with Ending(settings.drain).listening(stopping.set):
        async with AsyncExitStack() as stack, health_port(starting, health_host, health):
            runtime = await entered(stack, partial(running, settings, engine=OUTBOX), stopping)
            if runtime is not None:
                starting.app = runtime.health_app()
                ready()
                await stopping.wait()


def check_temporal(settings: Settings, verb: str) -> None:
    if not settings.temporal_enabled:
        raise TemporalOffError(
            f"`lucius {verb}` serves jobs on Temporal, and LUCIUS_TEMPORAL_ENABLED is false: set it to"
            " true for the orchestrators, invokers and workers alike"
        )


def check_invoker_address(settings: Settings, host: str) -> None:
    if not settings.invoker_secret and not is_loopback(host):
        raise UnsafeAddressError(
            f"{host} can be reached from other machines, and callers need no secret: set"
            " LUCIUS_INVOKER_SECRET for invokers, workers and orchestrators, or listen on 127.0.0.1"
        )
    if not settings.invoker_secret and not known_here():
        raise UnsafeAddressError(
            "every user of this machine could call the invoker, and this system does not say whose a"
            " connection is: set LUCIUS_INVOKER_SECRET for invokers, workers and orchestrators"
        )


async def invoke(settings: Settings, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """The internal API, and all that moves jobs on Temporal but their time. Until SIGINT or SIGTERM."""
    starting, stopping = Starting(), asyncio.Event()
    secret = settings.invoker_secret.get_secret_value()
    owner = None if secret else this_user()
    served = health_port(starting, host, port, most=MOST_CALLERS, owner=owner)
    with Ending(settings.drain).listening(stopping.set):
        async with AsyncExitStack() as stack, served as bound:
            runtime = await entered(stack, partial(running, settings, engine=TEMPORAL), stopping)
            if runtime is not None:
                starting.app = invoker_app(runtime.invoker, secret, runtime.health_app().routes)
                ready(f"http://{host}:{bound}")
                await stopping.wait()


async def work(
    settings: Settings,
    *,
    ready: Callable[[], None],
    health_host: str = LOOPBACK,
    health: int | None = None,
) -> None:
    """Workflows and their activities. Until SIGINT or SIGTERM; a server that is away is waited for."""
    registry, invoker, place = CollectorRegistry(), remote_invoker(settings), place_of(settings)
    ProcessCollector(registry=registry)
    module = of_temporal("workflows")
    workflows = module.TemporalWorkflows(await module.connected(place), place)
    workflows.instruments.register(registry)
    app = health_app({"temporal": workflows.check, "invoker": invoker.check}, registry)
    stopping = asyncio.Event()
    with Ending(settings.drain).listening(stopping.set):
        async with health_port(app, health_host, health):
            keep_working = of_temporal("worker").keep_working
            working = asyncio.create_task(
                keep_working(place, invoker, workflows.instruments, workflows.check)
            )
            ready()
            await stopping.wait()
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
    await invoker.close()
