"""The real SQLite ledger in one thread of virtual time, on a disk whose state at a death can be kept.

Its writer keeps its own thread, but that runs only when the loop says so, and the loop waits for it: a
commit is one step of its process. So a process dies before a commit or after it.
"""

import asyncio
import atexit
import shutil
import sqlite3
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache
from pathlib import Path
from queue import Empty
from random import Random
from typing import Any
from unittest.mock import patch

from lucius.adapters.ledgers.sqlite import writer
from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger

_current = threading.local()


class LockstepThread:
    """Runs while the loop waits for it, from one `get` of its queue to the next."""

    running: "list[LockstepThread]" = []

    def __init__(self, target: Any, name: str, daemon: bool) -> None:
        self._target = target
        self._context = copy_context()
        self._thread = threading.Thread(target=self._main, name=name, daemon=daemon)
        self._go, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self._over = False

    def _main(self) -> None:
        _current.thread = self
        try:
            with suppress(SystemExit):
                self._context.run(self._target)
        finally:
            self._over = True
            self._parked.release()

    def start(self) -> None:
        self.running.append(self)
        self._thread.start()
        self._parked.acquire()

    def park(self) -> None:
        """In the thread: let the loop go on until it wants something of this thread."""
        self._parked.release()
        self._go.acquire()
        if self._over:
            raise SystemExit

    def resume(self) -> None:
        """On the loop: have the thread do what it can."""
        if not self._over:
            self._go.release()
            self._parked.acquire()

    def end(self) -> None:
        if not self._over:
            self._over = True
            self._go.release()
        self._thread.join()

    def join(self) -> None:
        self._thread.join()


class LockstepQueue:
    """What the loop hands to the thread. The thread takes it a moment later."""

    random = Random(0)

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._thread: LockstepThread | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if getattr(_current, "thread", None) is None and self._thread is not None:
            delay = self.random.uniform(0.0001, 0.002)
            asyncio.get_running_loop().call_later(delay, self._thread.resume)

    def get(self) -> Any:
        self._thread = _current.thread
        while not self._items:
            _current.thread.park()
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()


@cache
def template() -> Path:
    """An empty ledger, made once, before the first run: each run copies it."""
    folder = Path(tempfile.mkdtemp(prefix="lucius-sim-"))
    atexit.register(shutil.rmtree, folder)

    async def make() -> None:
        await (await SqliteLedger.open(folder / "ledger.db")).close()

    asyncio.run(make())
    return folder


class Disk:
    """`crash` keeps what was written by then, and only that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = 0
        self._ledgers: list[SqliteLedger] = []
        shutil.copytree(template(), folder / "0")

    async def open(self) -> SqliteLedger:
        ledger = await SqliteLedger.open(self._folder / str(self._lives) / "ledger.db")
        self._ledgers.append(ledger)
        return ledger

    def crash(self) -> None:
        here = self._folder / str(self._lives)
        self._lives += 1
        left_out = shutil.ignore_patterns("*-shm", "*.lock")
        shutil.copytree(here, self._folder / str(self._lives), ignore=left_out)

    def end(self) -> None:
        for ledger in self._ledgers:
            if ledger._lock is not None:
                ledger._lock.release()


@contextmanager
def lockstep(random: Random) -> Iterator[None]:
    """The writers of all ledgers that are opened meanwhile run in lockstep with the loop."""
    template()
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def recorded(*args: Any, **named: Any) -> sqlite3.Connection:
        connections.append(connect(*args, **named))
        return connections[-1]

    LockstepQueue.random = random
    LockstepThread.running = []
    with (
        patch.object(writer, "Thread", LockstepThread),
        patch.object(writer, "SimpleQueue", LockstepQueue),
        patch.object(sqlite3, "connect", recorded),
    ):
        try:
            yield
        finally:
            for thread in LockstepThread.running:
                thread.end()
            for connection in connections:
                with suppress(sqlite3.Error):
                    connection.close()
