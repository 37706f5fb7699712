"""A socket that listens, or an error that says why it cannot."""

import errno
import secrets
import socket
from contextlib import closing
from typing import Final

from lucius.core.errors import LuciusError

LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 2048
UNASKED: Final = range(15_000, 32_768)
"""Ports that systems give neither to connections nor to whoever asks for any port."""
TRIES: Final = 100


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        hint = " (is another `lucius up` running there? --port names another)"
        more = hint if error.errno == errno.EADDRINUSE else ""
        raise LuciusError(f"cannot listen on {host}:{port}: {error.strerror}{more}") from error
    listener.listen(BACKLOG)
    return listener


def free_port() -> int:
    """For a process that is yet to start: nobody takes it meanwhile by chance."""
    for _ in range(TRIES):
        port = secrets.choice(UNASKED)
        try:
            listen(LOOPBACK, port).close()
        except LuciusError:
            continue
        return port
    with closing(listen(LOOPBACK, 0)) as probe:
        taken: int = probe.getsockname()[1]
        return taken
