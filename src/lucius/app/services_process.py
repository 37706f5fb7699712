"""The services of `lucius up` run in a process beside the server's: this is what the server has of it.

A service that computes, waits or dies there holds up no request and ends no server. When the process dies,
the leases of its services end, what it held comes again, and another one is started.
"""

import asyncio
import contextlib
import logging
import pickle
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from datetime import timedelta
from struct import Struct
from typing import Any, Final

from lucius.adapters.buses.linked import ServicesLink
from lucius.adapters.buses.memory import MemoryBus
from lucius.app.lifecycle import say_stopping
from lucius.app.loop_watch import Block
from lucius.app.services import ended_leases
from lucius.app.settings import Settings
from lucius.core.effects import Committed
from lucius.core.errors import LuciusError
from lucius.engine.ownership import LostServices
from lucius.engine.replies import ReplyConsumer
from lucius.platform.bodies import ServiceInstruments
from lucius.platform.isolation.forks import exit_description
from lucius.ports.bus import Bus
from lucius.system.machine import python_command

log = logging.getLogger("lucius")
HELLO: Final = Struct("!I")
READY, FAILED, DRAINING, DRAINED, BLOCKED = "ready", "failed", "draining", "drained", "blocked"
COUNTED: Final = "counted"
"""What the process reports."""
DRAIN, CANCEL, END_LEASE = "drain", "cancel", "end lease"
"""What it is told."""
DRAIN_SECONDS: Final = 8.0
"""How long giving leases back may take, beyond what running steps have."""
ANSWER_SECONDS: Final = 1.0
"""After so long without an answer its loop is taken for held up."""
END_SECONDS: Final = 5.0
"""How long it may take for its own end after that."""
LINGER_SECONDS: Final = 0.5
"""How long a dead process's socket may stay open: another one that it forked may hold it."""
PAUSES: Final = (0.0, 1.0, 5.0, 10.0)
"""Seconds before another one is started: the more have died in a row, the longer."""
STEADY: Final = timedelta(minutes=1)
"""One that has lived for so long has not died in a row."""


class ServicesFailedError(LuciusError):
    """The services cannot run as they are; the message says why."""


class ChildProcess:
    """One process of services, from its start to its end."""

    def __init__(
        self,
        bus: Bus,
        replies: ReplyConsumer,
        blocked: Callable[[Block], None],
        counted: Callable[[Any], None],
    ) -> None:
        self._counted = counted
        loop = asyncio.get_running_loop()
        taken = (replies.came, replies.until_capacity)
        directives = bus if isinstance(bus, MemoryBus) else None
        self.link = ServicesLink(directives, *taken, self._heard, self._unlinked)
        self._beside = ServicesLink(None, *taken, _unheard, lambda: None)
        self.began_at = loop.time()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.draining = asyncio.Event()
        self.drained: asyncio.Future[int] = loop.create_future()
        self._blocked = blocked
        self._process: Process | None = None
        self._failure = ""
        self._gone = asyncio.Event()

    async def begin(self, hello: bytes) -> None:
        """Start it. It has two sockets: one for everything, one for heartbeats of a thread over there.

        It inherits the environment. A session of its own keeps Ctrl-C from it: the server says what to do.
        """
        module = "lucius.app.services_child"
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            pairs = [socket.socketpair() for _ in range(2)]
            link, beside = (ours.enter_context(pair[0]) for pair in pairs)
            handles = [theirs.enter_context(pair[1]).fileno() for pair in pairs]
            words = python_command(module, *map(str, handles))
            self._process = await asyncio.create_subprocess_exec(
                *words, stdin=DEVNULL, stdout=2, pass_fds=handles, start_new_session=True
            )
            link.sendall(HELLO.pack(len(hello)) + hello)
            await _connected(self.link, link)
            await _connected(self._beside, beside)
            ours.pop_all()

    def _heard(self, word: str, value: Any) -> None:
        if word == READY and not self.ready.done():
            self.ready.set_result(None)
        elif word == FAILED:
            self._failure = str(value)
        elif word == DRAINING:
            self.draining.set()
        elif word == DRAINED and not self.drained.done():
            self.drained.set_result(int(value))
        elif word == COUNTED:
            self._counted(value)
        elif word == BLOCKED:
            service, place, seconds = value
            now = asyncio.get_running_loop().time()
            self._blocked(Block(str(service), str(place), float(seconds), now))

    def _unlinked(self) -> None:
        self._gone.set()

    @property
    def serves(self) -> bool:
        return self.ready.done() and not self._gone.is_set()

    async def end(self) -> str:
        """How it ended: once it has, and all that it had sent was received."""
        assert self._process is not None
        exited = asyncio.create_task(self._process.wait())
        closed = asyncio.create_task(self._gone.wait())
        await asyncio.wait((exited, closed), return_when=asyncio.FIRST_COMPLETED)
        self.link.read_to_the_end()
        try:
            if not closed.done():
                async with asyncio.timeout(LINGER_SECONDS):
                    await closed
        except TimeoutError:
            self.link.packets.close()
        how = await self._exit(exited)
        if not self.drained.done():
            self.drained.set_result(0)
        return self._failure or how

    async def _exit(self, exited: "asyncio.Task[int]") -> str:
        """One that has closed its connection, and goes on, is killed."""
        try:
            async with asyncio.timeout(END_SECONDS):
                return exit_description(await asyncio.shield(exited))
        except TimeoutError:
            self.kill()
            return f"it closed its connection, and {exit_description(await exited)}"

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


class ServicesProcess:
    """`incarnation`: what worker ids begin with; each process adds its number.

    `replies`: who takes what the services answer. It is asked for when the first process is started.
    `lost` is told who lives: the leases of the others are ended. `blocked` is told that a service has held up
    the event loop over there.
    """

    def __init__(
        self,
        names: Sequence[str],
        settings: Settings,
        bus: Bus,
        replies: Callable[[], ReplyConsumer],
        *,
        incarnation: str,
        lost: LostServices,
        blocked: Callable[[Block], None],
        instruments: ServiceInstruments,
    ) -> None:
        self._instruments = instruments
        self._names = names
        self._settings = settings
        self._bus = bus
        self._replies = replies
        self._incarnation = incarnation
        self._lost = lost
        self._blocked = blocked
        self._number = 0
        self._child: ChildProcess | None = None
        self._deaths = 0
        self._keeping: asyncio.Task[None] | None = None
        self._ending = False
        self._died = ""
        self.left_behind = 0

    @property
    def trouble(self) -> str | None:
        """Why no service runs, if none does."""
        if not self._names or (self._child is not None and self._child.serves):
            return None
        how = f" ({self._died})" if self._died else ""
        return f"the process of the services has died{how}, and another one is being started"

    def measure(self) -> None:
        """The process says it every few seconds."""

    def whose(self, task: "asyncio.Task[Any] | None") -> str | None:
        """No service runs on this loop."""
        return None

    # -- its life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Return when its services take directives. ServicesFailedError: they cannot run."""
        if not self._names:
            return
        child = await self._begun()
        self._keeping = asyncio.create_task(self._keep(child))
        await asyncio.wait((child.ready, self._keeping), return_when=asyncio.FIRST_COMPLETED)
        if not child.ready.done():
            await self._keeping  # says why

    async def _begun(self) -> ChildProcess:
        self._number += 1
        alive = self._lost.alive = f"{self._incarnation}{self._number}/"
        hello = pickle.dumps((sys.path, self._settings, list(self._names), alive))
        self._child = child = ChildProcess(
            self._bus, self._replies(), self._blocked, self._instruments.put
        )
        try:
            await child.begin(hello)
        except BaseException:
            child.kill()
            raise
        return child

    async def _keep(self, child: ChildProcess) -> None:
        """See each process to its end, and start the next one."""
        how = await child.end()
        if not child.ready.done():
            raise ServicesFailedError(f"the services cannot be started: {how}")
        while not self._ending:
            self._died = how
            log.error("the process of the services is gone: %s; another one is started", how)
            self._lost.died(f"{self._incarnation}{self._number + 1}/")
            await asyncio.sleep(self._pause(child))
            try:
                child = await self._begun()
                how = await child.end()
            except OSError as error:
                how = str(error)

    def _pause(self, child: ChildProcess) -> float:
        lived = asyncio.get_running_loop().time() - child.began_at
        self._deaths = 1 if lived > STEADY.total_seconds() else self._deaths + 1
        return PAUSES[min(self._deaths, len(PAUSES)) - 1]

    # -- its end -----------------------------------------------------------------------------

    async def drain(self) -> None:
        """Nothing new begins; what runs ends, or is given back."""
        self._ending = True
        child = self._child
        if child is None or not child.serves:
            say_stopping(0, self._settings.drain)
            return
        child.link.order(DRAIN)
        child.link.read_to_the_end()
        seconds = self._settings.drain.total_seconds() + DRAIN_SECONDS
        try:
            async with asyncio.timeout(seconds):
                await self._heard_of(child, seconds)
                self.left_behind = await asyncio.shield(child.drained)
        except TimeoutError:
            log.error("the process of the services does not end, and is killed")
            self.left_behind = 1
            child.kill()

    async def _heard_of(self, child: ChildProcess, seconds: float) -> None:
        """The process says what it waits for; one whose loop is held up cannot."""
        answers = (asyncio.create_task(child.draining.wait()), child.drained)
        done, _ = await asyncio.wait(
            answers, timeout=ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        answers[0].cancel()
        if not done:
            log.warning(
                "stopping; the process of the services does not answer, and is killed after %g s;"
                " Ctrl-C again ends at once",
                seconds,
            )

    async def close(self) -> None:
        self._ending = True
        if self._child is not None:
            self._child.link.packets.close()
        if self._keeping is None:
            return
        if self._child is None or not self._child.serves:
            self._keeping.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * END_SECONDS):
                await asyncio.gather(self._keeping, return_exceptions=True)
        if self._child is not None:
            self._child.kill()

    # -- what it is told -----------------------------------------------------------------------

    def listen(self, commit: Committed) -> None:
        """As services of this process hear it: a job is being cancelled, or a lease has ended."""
        before, job = commit.before, commit.job
        if before is None or self._child is None:
            return
        link = self._child.link
        for lease_id in ended_leases(commit):
            link.order(END_LEASE, lease_id)
        if job.cancel_requested_at is not None and before.state != job.state:
            link.order(CANCEL, job.job_id)


async def _connected(link: ServicesLink, connection: socket.socket) -> None:
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: link.packets, connection)


def _unheard(word: str, value: Any) -> None:
    """Only replies come this way."""
