"""Who holds up the event loop: a thread looks whether it turns, and names what runs when it does not."""

import asyncio
import logging
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, Final

log = logging.getLogger("lucius.loop")

LIMIT: Final = timedelta(seconds=1)
"""How long the loop may stand still before the log says what holds it up."""
LOOKS: Final = 4
"""So often within the limit: a block is noticed at most this part of it late."""
OURSELVES: Final = "lucius"
"""Stands for the service where the block is not in one."""
RECENT: Final = timedelta(minutes=5)
_LIBRARIES: Final = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib")
)

ServiceOf = Callable[["asyncio.Task[Any] | None"], str | None]
"""Which service a task belongs to. Called from another thread."""


@dataclass(frozen=True, slots=True)
class Block:
    """One time that the loop stood still. `place` is file, line and function, without the folder."""

    service: str
    place: str
    seconds: float
    ended_at: float

    def __str__(self) -> str:
        return f"{self.service} held up the event loop for {self.seconds:.1f} s, in {self.place}"


class LoopWatch:
    """`told` is called on the loop after each block; `standing`, at each look during one, by the thread."""

    def __init__(
        self,
        whose: ServiceOf,
        told: Callable[[Block], None],
        standing: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        limit: timedelta = LIMIT,
    ) -> None:
        self._limit = limit.total_seconds()
        self._whose = whose
        self._told = told
        self._standing = standing
        self._clock = clock
        self._over = threading.Event()
        self._turned_at = 0.0
        self._named: tuple[str, str] | None = None
        self._last: Block | None = None

    def recent(self) -> Block | None:
        """The last block, if it is not long ago."""
        last = self._last
        fresh = last is not None and self._clock() - last.ended_at < RECENT.total_seconds()
        return last if fresh else None

    def note(self, block: Block) -> None:
        """The loop of a process beside this one was held up."""
        self._last = block
        self._told(block)

    @contextmanager
    def watching(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        self._turned_at = self._clock()
        turning = loop.create_task(self._turn())
        looking = threading.Thread(
            target=self._look_forever, args=(loop, threading.get_ident()), daemon=True
        )
        looking.start()
        try:
            yield
        finally:
            self._over.set()
            turning.cancel()

    # -- on the loop -------------------------------------------------------------------------

    async def _turn(self) -> None:
        while True:
            self._turned()
            await asyncio.sleep(self._limit / LOOKS)

    def _turned(self) -> None:
        before, self._turned_at = self._turned_at, self._clock()
        named, self._named = self._named, None
        if named is not None:
            self._last = Block(*named, self._turned_at - before, self._turned_at)
            log.warning("%s", self._last)
            self._told(self._last)

    # -- in the thread -----------------------------------------------------------------------

    def _look_forever(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        looked_at = self._clock()
        while not self._over.wait(self._limit / LOOKS):
            before, looked_at = looked_at, self._clock()
            if self._blocked(before, looked_at):
                if self._named is None:
                    self._name(loop, thread)
                self._standing()

    def _blocked(self, before: float, now: float) -> bool:
        if now - before > self._limit:
            self._turned_at = now  # the whole process stood still: nobody is to blame
        return now - self._turned_at > self._limit

    def _name(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        frame = sys._current_frames().get(thread)
        if frame is None:
            return
        service = self._whose(asyncio.current_task(loop)) or OURSELVES
        place = place_of(frame)
        stack = "".join(traceback.format_stack(frame))
        self._named = service, place
        log.error("%s holds up the event loop, in %s\n%s", service, place, stack.rstrip())


def place_of(frame: FrameType) -> str:
    """The innermost call that is not a library's."""
    found: FrameType | None = frame
    while found is not None and os.path.realpath(found.f_code.co_filename).startswith(_LIBRARIES):
        found = found.f_back
    found = found or frame
    name = os.path.basename(found.f_code.co_filename)
    return f"{name}:{found.f_lineno} ({found.f_code.co_name})"
