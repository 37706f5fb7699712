"""A real NATS server for tests: on a free port of loopback, with a folder of its own, killed at will."""

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from lucius.app.stacks import die_with_parent


class NatsServer:
    """It is killed, never asked to stop: whatever it has acknowledged must be there afterwards."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._store = tempfile.mkdtemp(prefix="nats-")
        self._port = -1
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when it takes connections; on the same port and folder each time."""
        if self._process is not None:
            return
        binary = Path(sys.executable).parent / "nats-server"
        words = ["-js", "-sd", self._store, "-a", "127.0.0.1", "-p", str(self._port)]
        self._process = subprocess.Popen(
            [str(binary), *words, *self._options],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # a test process may end without a word to `atexit`
        )
        said = self._process.stderr
        assert said is not None
        for line in said:
            if "Listening for client connections on" in line:
                self._port = int(line.rpartition(":")[2])
            if "Server is ready" in line:
                self._reader = threading.Thread(target=said.read, daemon=True)
                self._reader.start()
                return
        raise AssertionError(f"{binary} does not start")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None

    def lose_everything(self) -> None:
        """Come back as if the disk had been replaced."""
        self.kill()
        shutil.rmtree(self._store)
        self.start()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._store, ignore_errors=True)


@functools.cache
def shared_server() -> NatsServer:
    """One for all tests of a process; each uses names of its own."""
    server = NatsServer()
    atexit.register(server.remove)
    return server
