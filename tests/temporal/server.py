"""A real Temporal server for tests: on a free port of loopback, with a file of its own, killed at will."""

import asyncio
import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from temporalio.client import Client

from lucius.bootstrap.broker import die_with_parent
from lucius.bootstrap.listening import free_port
from lucius.bootstrap.temporal_server import server_command


class TemporalServer:
    """On the same port and file each time it starts."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="temporal-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the Temporal server is not started"
        return self._process.pid

    def start(self) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                server_command(self._folder / "temporal.db", self._port, None),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def client(self) -> Client:
        """Once it takes connections. Patient: the machine may be busy.

        A server that has ended is started again: it chooses ports for its own use, which somebody else may
        have taken meanwhile.
        """
        for _ in range(600):
            if self._process is not None and self._process.poll() is not None:
                self.kill()
                self.start()
            try:
                return await Client.connect(self.address)
            except RuntimeError:
                await asyncio.sleep(0.1)
        raise AssertionError("the Temporal server does not start")

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@functools.cache
def shared_server() -> TemporalServer:
    """One for all tests of a process; each uses a task queue of its own."""
    server = TemporalServer()
    server.start()
    atexit.register(server.remove)
    return server
