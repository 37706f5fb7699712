"""A local workspace whose small objects are written by a process of its own.

A thread that writes files gives up the interpreter at every system call. A busy event loop makes it wait each
time, and waits for it in turn. A process of its own shares no interpreter. While there is none, because it
starts or has died, this process writes by itself.
"""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lucius.platform.isolation.forks import environment, told_exit
from lucius.workspaces.local import LocalWorkspace
from lucius.workspaces.packets import Packets

log = logging.getLogger(__name__)
MOST_BYTES: Final = 1024 * 1024
"""Larger objects are written here: handing them over would cost more than writing them."""
SILENT_SECONDS: Final = 30.0
"""So long, and up to twice as long, a request may take before the process is taken for stuck."""
RESTART_SECONDS: Final = 10.0
"""After its process has died, a workspace is written here for so long before another one is started."""


END_SECONDS: Final = 5.0
"""How long the process may take for what it is at, and then for its own end."""


class WriterGoneError(Exception):
    """There is no process to write. What it was asked for before may or may not have been done."""


class WriterProcess:
    """The process as the event loop sees it. It starts with the first request."""

    def __init__(self, places: Sequence[Any]) -> None:
        self._places = places
        self._process: subprocess.Popen[bytes] | None = None
        self._packets: Packets | None = None
        self._starting: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starts_at = 0.0
        self._serves = asyncio.Event()
        self._closed = False
        self._number = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._watch: asyncio.TimerHandle | None = None

    async def ask(
        self, folders: tuple[str, ...] | None, name: str, *args: Any, **options: Any
    ) -> Any:
        """What this method of the workspace, or of its view, answers there. WriterGoneError: nobody knows."""
        loop = asyncio.get_running_loop()
        if not self._serves.is_set() or self._packets is None or self._loop is not loop:
            self._start(loop)
            raise WriterGoneError
        if self._watch is None:
            self._watch = loop.call_later(SILENT_SECONDS, self._look, self._number)
        self._number += 1
        answer = self._asked[self._number] = loop.create_future()
        self._packets.send((self._number, folders, name, args, options))
        return await answer

    async def started(self) -> None:
        """Start the process, if there is none, and wait until it serves."""
        self._start(asyncio.get_running_loop())
        await self._serves.wait()

    def _look(self, number: int) -> None:
        """A process that has answered nothing for so long, though it was asked, is ended."""
        oldest, self._watch = next(iter(self._asked), None), None
        if oldest is None or self._loop is None:
            return
        if oldest <= number and self._process is not None:
            log.warning("the process that writes the workspace does not answer, and is killed")
            self._process.kill()
        else:
            self._watch = self._loop.call_later(SILENT_SECONDS, self._look, self._number)

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._process is not None or self._closed or loop.time() < self._starts_at:
            return
        self._loop, self._starts_at = loop, loop.time() + RESTART_SECONDS
        command = [sys.executable, "-P", "-m", "lucius.workspaces.writer_child"]
        ours: socket.socket | None = None
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    env=environment(os.environ),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            if ours is not None:
                ours.close()
            log.warning("no process can be started that writes the workspace: %s", error)
            return
        ours.setblocking(False)
        self._packets = Packets(self._received, self._lost)
        self._starting = loop.create_task(self._connect(ours, self._packets))

    async def _connect(self, ours: socket.socket, packets: Packets) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: packets, ours)
        packets.send(self._places)

    def _received(self, said: tuple[int | None, bool, Any]) -> None:
        number, done, value = said
        if number is None:
            if done:
                self._serves.set()
            else:
                name, level, text = value
                logging.getLogger(name).log(level, "%s", text)
            return
        answer = self._asked.pop(number)
        if answer.done():
            return  # whoever asked has gone
        if done:
            answer.set_result(value)
        else:
            answer.set_exception(value)

    def _lost(self) -> None:
        self._serves.clear()
        self._packets = None
        if self._process is not None:
            how = _killed(self._process)
            self._process = None
            if not self._closed:
                log.warning("the process that writes the workspace is gone: %s", how)
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            if not answer.done():
                answer.set_exception(WriterGoneError())

    async def close(self) -> None:
        """The process ends what it is at, and then itself."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._starting is not None:
            await self._starting
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=END_SECONDS)
        packets, process, self._process = self._packets, self._process, None
        if packets is not None:
            packets.close()
        if process is not None:
            await asyncio.to_thread(_ended, process)


def _killed(process: "subprocess.Popen[bytes]") -> str:
    """How it ended. One that the disk holds up may end later."""
    process.kill()
    try:
        return told_exit(process.wait(1))
    except subprocess.TimeoutExpired:
        return "it does not end yet"


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("the process that writes the workspace does not end, and is killed")
        process.kill()
        process.wait()


class LocalWorkspaceApart(LocalWorkspace):
    """Implements `lucius.ports.workspace.Workspace`; what is read is read here."""

    def __init__(
        self,
        root: Path,
        *,
        readable: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        protected: Sequence[Path] = (),
    ) -> None:
        super().__init__(root, readable=readable, writable=writable, protected=protected)
        places = [
            [os.path.abspath(each) for each in given] for given in (readable, writable, protected)
        ]
        self.writer = WriterProcess([os.path.abspath(root), *places])

    @property
    def _view(self) -> tuple[str, ...] | None:
        return None if self._allowed is None else self._folders

    async def create_all(
        self, objects: Sequence[tuple[str, bytes]], *, unless: str | None = None
    ) -> int | None:
        if sum(len(data) for _, data in objects) <= MOST_BYTES:
            with suppress(WriterGoneError):
                found: int | None = await self.writer.ask(
                    self._view, "create_all", objects, unless=unless
                )
                return found
        return await super().create_all(objects, unless=unless)

    async def write(self, uri: str, data: bytes) -> None:
        if len(data) <= MOST_BYTES:
            with suppress(WriterGoneError):
                await self.writer.ask(self._view, "write", uri, data)
                return
        await super().write(uri, data)

    async def remove(self, uri: str) -> None:
        """The process remembers folders that it has met: so it is told which are gone."""
        with suppress(WriterGoneError):
            await self.writer.ask(self._view, "remove", uri)
            self._together.forget()
            return
        await super().remove(uri)

    async def close(self) -> None:
        await self.writer.close()
        await super().close()
