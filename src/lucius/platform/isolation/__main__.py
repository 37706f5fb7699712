"""The process that forks the children of a server: single-threaded, with the services imported.

It ends, and every child with it, when the server's end of the control socket is closed: so also
when the server was killed.
"""

import contextlib
import ctypes
import os
import pickle
import select
import signal
import socket
import sys
import traceback
from typing import Any, Final

from lucius.platform.isolation.child import run_child
from lucius.platform.isolation.frames import LENGTHS, frame, parsed
from lucius.platform.service import Service, memory_limit_of

MAX_FDS: Final = 32
PR_SET_PDEATHSIG: Final = 1
FIRST_TO_GO: Final = "800"
"""Of the machine's memory killer: it takes a child before the server."""


class ForkingProcess:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._woken, self._waker = socket.socketpair()
        self._received = bytearray()
        self._handed: list[int] = []
        self._services: dict[int, Service] = {}
        self._children: set[int] = set()

    def run(self) -> None:
        for end in (self._woken, self._waker):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._control, self._woken], [], [])
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                self._reap()
            if self._control in ready and not self._listened():
                break
        for pid in self._children:
            kill(pid)

    def _listened(self) -> bool:
        """False: the server has gone."""
        data, handed, _, _ = socket.recv_fds(self._control, 1 << 20, MAX_FDS)
        self._received += data
        self._handed += handed
        while (order := self._next()) is not None:
            self._do(*order)
        return bool(data)

    def _next(self) -> tuple[dict[str, Any], bytes] | None:
        if len(self._received) < LENGTHS.size:
            return None
        head, body = LENGTHS.unpack_from(self._received)
        start, end = LENGTHS.size + head, LENGTHS.size + head + body
        if len(self._received) < end:
            return None
        header, content = bytes(self._received[LENGTHS.size : start]), self._received[start:end]
        del self._received[:end]
        return parsed(header), bytes(content)

    def _do(self, order: dict[str, Any], content: bytes) -> None:
        match order["do"]:
            case "learn":
                self._learn(order, content)
            case "fork":
                self._fork(order)
            case "kill" if order["pid"] in self._children:
                kill(order["pid"])

    def _learn(self, order: dict[str, Any], content: bytes) -> None:
        """Import a service, once for all of its children."""
        sys.path[:] = order["path"]
        os.environ.update(order["environment"])
        try:
            self._services[order["service"]] = pickle.loads(content)
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            self._say({"say": "refused", "service": order["service"], "reason": reason})

    def _fork(self, order: dict[str, Any]) -> None:
        channel = self._handed.pop(0)
        service = self._services.get(order["service"])
        if service is not None:
            born_of = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._become_child(channel, service, born_of)
            self._children.add(pid)
            self._say({"say": "forked", "serial": order["serial"], "pid": pid})
        os.close(channel)

    def _become_child(self, channel: int, service: Service, born_of: int) -> None:
        """Never returns. Only the channel is kept of what the process has open."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._control, self._woken, self._waker):
                each.close()
            for handed in self._handed:
                os.close(handed)
            end_with(born_of)
            limit_memory(memory_limit_of(service))
            run_child(socket.socket(fileno=channel), service)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _reap(self) -> None:
        """A child's own children go with it. Its number is not given up before they are gone."""
        while self._children:
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            found = os.waitid(os.P_ALL, 0, look)
            if found is None:
                return
            kill(found.si_pid)
            _, status = os.waitpid(found.si_pid, 0)
            self._children.discard(found.si_pid)
            code = os.waitstatus_to_exitcode(status)
            self._say({"say": "ended", "pid": found.si_pid, "code": code})

    def _say(self, header: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(b"".join(frame(header)))


def kill(pid: int) -> None:
    """The child and every process that it has started."""
    for end in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def end_with(parent: int) -> None:
    """The child ends when this process does, however that happens (where the kernel offers it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit_memory(limit: int) -> None:
    """What is in use is watched by the server; this is for what would be taken between two looks.

    Twice the limit, as this also counts what was reserved and never used. Address space is not
    limited: native libraries reserve far more of it than they use.
    """
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (2 * limit, 2 * limit))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(FIRST_TO_GO)


if __name__ == "__main__":
    ForkingProcess(socket.socket(fileno=int(sys.argv[1]))).run()
