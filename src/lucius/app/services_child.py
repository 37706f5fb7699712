"""The process that the services of `lucius up` run in: `python -m lucius.app.services_child FD FD`.

The server tells it what to run. It ends when the server says so, and at once when the server has gone.
"""

import asyncio
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from lucius.adapters.buses.linked import LinkedBus, Word
from lucius.adapters.buses.packets import encoded, packet
from lucius.app.adapters import open_bus, open_workspace
from lucius.app.lifecycle import SIGNALS, quick_loop, run_to_its_end, settle_collector
from lucius.app.loop_watch import Block, LoopWatch
from lucius.app.services import ServiceHost, named_service
from lucius.app.services_process import (
    BLOCKED,
    CANCEL,
    COUNTED,
    DRAIN,
    DRAINED,
    DRAINING,
    END_LEASE,
    FAILED,
    HELLO,
    READY,
)
from lucius.app.settings import Settings
from lucius.app.stacks import die_with_parent
from lucius.app.telemetry import observed
from lucius.core.errors import LuciusError
from lucius.platform.bodies import ServiceInstruments
from lucius.platform.messages import SILENT, BusReplies, Directive, Replies, ReplyAnswer
from lucius.platform.runner import StandbyHeartbeats
from lucius.ports.bus import Bus, Message
from lucius.system.spans import traced

log = logging.getLogger("lucius")
COUNT_SECONDS: Final = 2.0
"""Between two reports of what the services have done, for the metrics of the server."""


class ServicesChild:
    def __init__(self, settings: Settings, names: Sequence[str], alive: str) -> None:
        self._settings = settings
        self._names = names
        self._alive = alive
        self._link = LinkedBus(self._ordered, self._server_gone)
        self._own: ServiceHost | None = None
        self._draining = asyncio.Event()
        self._drained = False
        self._instruments = ServiceInstruments()
        self._counted: list[Any] = []

    async def run(self, connection: socket.socket, beside: socket.socket) -> None:
        loop, link = asyncio.get_running_loop(), self._link
        await loop.connect_accepted_socket(lambda: link.packets, connection)
        try:
            bus = traced(link) if self._settings.bus_backend == "memory" else self._other_bus()
            await self._serve(bus, beside)
        except LuciusError as error:
            link.report(FAILED, str(error))
            await link.packets.sent()
        finally:
            await link.close()

    def _other_bus(self) -> Bus:
        return traced(open_bus(self._settings))

    async def _serve(self, bus: Bus, beside: socket.socket) -> None:
        settings = self._settings
        workspace = open_workspace(settings, restores=False)  # the server has done it
        services = [named_service(name, settings) for name in self._names]
        self._own = own = ServiceHost(
            services,
            bus,
            workspace,
            topology=settings.lane_topology,
            topologies=settings.topologies(),
            grace=settings.drain,
            incarnation=self._alive,
            instruments=self._instruments,
        )
        standby = StandbyHeartbeats(own.runners, lambda: _straight(beside, bus, settings))
        watch = LoopWatch(own.whose, self._blocked, standby.send_due)
        await own.start()
        self._link.report(READY)
        counting = asyncio.create_task(self._count_forever(own))
        with watch.watching():
            await self._draining.wait()
            await own.drain()
        counting.cancel()
        self._count(own)
        self._drained = True
        self._link.report(DRAINED, own.left_behind)
        await self._link.packets.sent()
        await own.close()
        await workspace.close()
        if bus is not self._link:
            await bus.close()

    async def _count_forever(self, own: ServiceHost) -> None:
        while True:
            self._count(own)
            await asyncio.sleep(COUNT_SECONDS)

    def _count(self, own: ServiceHost) -> None:
        """What came since the last time; nothing is sent where nothing has."""
        own.measure()
        taken = self._instruments.taken()
        if taken != self._counted:
            self._link.report(COUNTED, taken)
        self._counted = [[], [], taken[-1]]

    def _blocked(self, block: Block) -> None:
        self._link.report(BLOCKED, (block.service, block.place, block.seconds))

    def _ordered(self, word: str, value: Any) -> None:
        runners = [] if self._own is None else self._own.runners
        for runner in runners:
            if word == END_LEASE:
                runner.end_lease(value)
            elif word == CANCEL:
                runner.request_cancel(value)
        if word == DRAIN:
            self._link.report(DRAINING)
            self._draining.set()

    def _server_gone(self) -> None:
        """Its bus went with it, and nobody waits for an answer. Once all is drained, so it should be."""
        if not self._drained:
            os._exit(1)


@asynccontextmanager
async def _straight(beside: socket.socket, bus: Bus, settings: Settings) -> AsyncIterator[Replies]:
    """A way for heartbeats of a thread that the loop has no part in."""
    if settings.bus_backend == "memory":
        yield StraightReplies(beside)
        return
    other = open_bus(settings)
    try:
        yield BusReplies(other)
    finally:
        await other.close()


class StraightReplies:
    """Implements `lucius.platform.messages.Replies` on a socket that nobody else writes to."""

    def __init__(self, beside: socket.socket) -> None:
        self._beside = beside

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        value = encoded((Word.REPLY, message.body))
        await asyncio.to_thread(self._beside.sendall, packet([value]))
        return SILENT


def hello(connection: socket.socket) -> Any:
    """What the server says first. It is the same program, and nobody else holds the socket."""
    (size,) = HELLO.unpack(connection.recv(HELLO.size, socket.MSG_WAITALL))
    return pickle.loads(connection.recv(size, socket.MSG_WAITALL))


def main(handle: int, beside: int) -> None:
    if sys.platform == "linux":
        die_with_parent()  # also while a service holds up the loop
    for number in SIGNALS:  # the server gets them too, and says what to do
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=_obey)
    for each in (handle, beside):  # what services start has no part in this
        os.set_inheritable(each, False)
    connection = socket.socket(fileno=handle)
    path, settings, names, alive = hello(connection)
    sys.path[:] = path
    connection.setblocking(False)

    async def run() -> None:
        with observed(settings.model_copy(update={"warnings": ()})):  # the server has said them
            child = ServicesChild(settings, names, alive)
            await child.run(connection, socket.socket(fileno=beside))
        logging.shutdown()
        os._exit(0)  # whatever a service has left running

    settle_collector()
    run_to_its_end(run(), quick_loop())


def _obey() -> None:
    """What a service forks ends by a signal like any process."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
