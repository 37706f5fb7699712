"""A real `lucius up` in a process of its own, on a free port."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from lucius.app.lifecycle import free_port

LUCIUS = str(Path(sys.executable).parent / "lucius")
READY_SECONDS = 240.0


def clean_environment(**more: str) -> dict[str, str]:
    """Ours, without settings of LUCIUS, and with its command on the path."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LUCIUS_")}
    kept["PATH"] = f"{Path(LUCIUS).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, **more}


class Up:
    """One server process. Leaving it behind is an error: stop it."""

    def __init__(self, folder: Path, *options: str, **env: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "up.log"
        words = [*self.program(), "up", "--port", self.url.rpartition(":")[2], *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words, cwd=folder, env=clean_environment(**env), stdout=log, stderr=log
            )

    def program(self) -> list[str]:
        return [LUCIUS]

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log()
            try:
                with urlopen(f"{self.url}/readyz", timeout=2):
                    return
            except (URLError, OSError):
                time.sleep(0.02)
        raise AssertionError(f"not ready: {self.log()}")

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def ended(self, seconds: float = 120) -> int:
        return self._process.wait(seconds)

    def stop(self) -> int:
        self.terminate()
        return self.ended()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


class Changed(Up):
    """With other constants of `lucius.app`, such as `processes.HEAD_TIME`, so that no test waits long."""

    def __init__(self, constants: Mapping[str, str], folder: Path, *options: str) -> None:
        self._constants = constants
        super().__init__(folder, *options)

    def program(self) -> list[str]:
        lines = ["from datetime import timedelta", "from lucius.cli.main import main"]
        for name, value in self._constants.items():
            module = f"lucius.app.{name.rpartition('.')[0]}"
            lines += [f"import {module}", f"lucius.app.{name} = {value}"]
        return [sys.executable, "-c", "\n".join([*lines, "main()"])]


@contextmanager
def up(folder: Path, *options: str, **env: str) -> Iterator[Up]:
    with running(Up(folder, *options, **env)) as server:
        yield server


@contextmanager
def running(server: Up) -> Iterator[Up]:
    """Until the end of the block, from when it is ready."""
    try:
        server.await_ready()
        yield server
    finally:
        server.kill()
