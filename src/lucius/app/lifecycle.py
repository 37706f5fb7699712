"""How a process ends: in order at the first signal, at once at the second, and for certain in time.

Signals are taken by Python's own handlers, not by the loop's: those would wait for a loop that a
service holds up.
"""

import asyncio
import errno
import gc
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any, Final

from lucius.core.errors import LuciusError
from lucius.platform.execution import is_interrupt

# A socket that listens, or an error that says why it cannot.

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


# How often Python looks for cycles in processes that run for long.

COLLECT: Final = (50_000, 20, 50)


def settle_collector() -> None:
    """Aggregates are values without cycles: counting references frees them, so look for cycles rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


log = logging.getLogger("lucius")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
CLOSING: Final = timedelta(seconds=10)
"""How long giving leases back and closing may take, after running steps have had their time."""
CUT_SHORT: Final = 1
"""The exit code of a process that did not end in order."""


def run_to_its_end(
    work: Coroutine[Any, Any, None], new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """As `asyncio.run`, but `sys.exit()` in a task that a service has started ends that task alone.

    asyncio ends the loop by it. Nothing is lost then, so the loop goes on where it was.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        loop = runner.get_loop()
        main = loop.create_task(work)
        while True:
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as error:
                if main.done() or is_interrupt(error):
                    raise
                log.error("a task of a service would have ended this process", exc_info=error)


def quick_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def say_stopping(running: int, drain: timedelta) -> None:
    """For whoever pressed Ctrl-C: how many steps are waited for, and for how long."""
    if not running:
        log.info("stopping; no step is at work")
        return
    steps = "1 step that is" if running == 1 else f"{running} steps that are"
    log.info(
        "stopping; waiting for %s at work, %g s at most (LUCIUS_DRAIN_SECONDS); Ctrl-C again ends at once",
        steps,
        drain.total_seconds(),
    )


class Ending:
    """`drain`: how long running steps and open requests may finish after the first signal."""

    def __init__(
        self,
        drain: timedelta,
        leave: Callable[[int], object] = os._exit,
        closing: timedelta = CLOSING,
    ) -> None:
        self._seconds = (drain + closing).total_seconds()
        self._leave = leave
        self._begun = False
        self._over = threading.Event()

    @contextmanager
    def listening(self, begin: Callable[[], None]) -> Iterator[None]:
        """`begin` is called on the loop at the first signal. Leaving means that all ended in order."""
        loop = asyncio.get_running_loop()

        def signalled(number: int, frame: FrameType | None) -> None:
            self._signalled(number)
            if not loop.is_closed():
                loop.call_soon_threadsafe(begin)

        before = {number: signal.signal(number, signalled) for number in SIGNALS}
        try:
            yield
        finally:
            self._over.set()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int) -> None:
        if self._begun:
            log.warning("ended at once, by a second signal")
            self._leave(128 + number)
        self._begun = True
        threading.Thread(target=self._wait, name="ending", daemon=True).start()

    def _wait(self) -> None:
        if not self._over.wait(self._seconds):
            log.error(
                "not ended in order within %g s, so at once; what ran is taken up at the next start",
                self._seconds,
            )
            self._leave(CUT_SHORT)

    def leave_behind(self, count: int) -> None:
        """Everything is closed, but so many executions go on: nothing else would end them."""
        if count and self._begun:
            log.error(
                "%d executions ignore that they were cancelled; the process ends anyway", count
            )
            self._leave(CUT_SHORT)
