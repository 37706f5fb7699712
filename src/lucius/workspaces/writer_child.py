"""The process that writes a local workspace for another one: `python -m lucius.workspaces.writer_child FD`.

It does what it is asked over its socket, and ends when whoever started it has gone. It decides nothing: the
workspace is the same as in the other process, with the same checks of every path.
"""

import asyncio
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from lucius.core.errors import WorkspaceError
from lucius.workspaces.local import LocalWorkspace
from lucius.workspaces.packets import Packets


class Reports(logging.Handler):
    """What is logged here is logged by the other process, in its own form."""

    def __init__(self, packets: Packets) -> None:
        super().__init__()
        self._packets = packets
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        said = (None, False, (record.name, record.levelno, self.format(record)))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._packets.send, said)


class WriterChild:
    def __init__(self) -> None:
        self._workspace: LocalWorkspace | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._packets = Packets(self._received, self._over.set)

    async def serve(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self._packets, connection)
        logging.basicConfig(handlers=[Reports(self._packets)], format="%(message)s", force=True)
        await self._over.wait()
        if self._running:
            await asyncio.wait(self._running)

    def _received(self, asked: Any) -> None:
        """First the places of the workspace, then what is to be done."""
        if self._workspace is None:
            root, *places = asked
            readable, writable, protected = ([Path(each) for each in given] for given in places)
            self._workspace = LocalWorkspace(
                Path(root), readable=readable, writable=writable, protected=protected
            )
            self._packets.send((None, True, None))
            return
        task = asyncio.get_running_loop().create_task(self._perform(self._workspace, *asked))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _perform(
        self,
        workspace: LocalWorkspace,
        number: int,
        folders: tuple[str, ...] | None,
        name: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        view = workspace if folders is None else workspace.within(*folders)
        try:
            answer = (number, True, await getattr(view, name)(*args, **options))
        except WorkspaceError as error:
            answer = (number, False, error)
        except Exception as error:
            answer = (number, False, WorkspaceError(f"{name}: {error!r}"))
        self._packets.send(answer)


async def main(handle: int) -> None:
    await WriterChild().serve(socket.socket(fileno=handle))


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # whoever started it ends first, and it follows
        signal.signal(number, signal.SIG_IGN)
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(int(sys.argv[1])))
    else:
        uvloop.run(main(int(sys.argv[1])))
