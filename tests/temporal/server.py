"""A real Temporal server for tests: on a free port of loopback, with a file of its own, killed at will."""

import asyncio
import atexit
import functools
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from temporalio.client import Client

from lucius.app.lifecycle import free_port
from lucius.app.stacks import die_with_parent
from lucius.app.temporal import server_command

LOOKS = 600


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
        """Once it serves. Patient: the machine may be busy."""
        for _ in range(LOOKS):
            self._start_again()
            try:
                return await Client.connect(self.address)
            except RuntimeError:
                await asyncio.sleep(0.1)
        raise AssertionError("the Temporal server does not start")

    def wait(self) -> None:
        """Until it takes connections, where no loop runs."""
        for _ in range(LOOKS):
            self._start_again()
            try:
                return socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the Temporal server does not start")

    def _start_again(self) -> None:
        """One that has ended: it chooses ports for its own use, which others may have taken meanwhile."""
        if self._process is not None and self._process.poll() is not None:
            self.kill()
            self.start()

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
