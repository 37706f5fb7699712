"""What the services of this process are at work on, in a file that a crash of the process leaves behind.

A bus in memory dies with its process, and an ACK that was not saved yet dies with the bus. So a step that
kills its process at once would never be seen to have begun. The next process reads here what was at work,
and hears those ACKs after all. Nothing is synced: no crash of a process loses what was written.

The file is mapped into memory, because every step writes to it twice: a system call would give up the
interpreter each time, and a busy event loop waits to get it back.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from lucius.core.inputs import AckReceived
from lucius.platform.directive import AttemptKey, Directive
from lucius.platform.records import Begun, MemoryRecords, Result

FILE: Final = "at-work"
_SLOT: Final = 2048
"""Bytes: room for one attempt. Names that do not fit are not noted."""
_SLOTS: Final = 64
"""The file grows by so many."""


class LeftAtWork(NamedTuple):
    job_id: str
    ack: AckReceived


class AtWork(MemoryRecords):
    """The records of services that share the process with their bus."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._slots: dict[AttemptKey, int] = {}
        self._free: list[int] = []
        self._mapped: mmap.mmap | None = None

    def left(self) -> Iterator[LeftAtWork]:
        """What an earlier process was at work on when it died."""
        size = os.fstat(self._file).st_size
        for start in range(0, size, _SLOT):
            line = os.pread(self._file, _SLOT, start).partition(b"\n")[0]
            with suppress(ValueError, TypeError):  # half a line, or none
                job_id, *ack = orjson.loads(line)
                yield LeftAtWork(job_id, AckReceived(*ack))

    def clear(self) -> None:
        """What was left has been heard of."""
        self._unmap()
        self._slots.clear()
        self._free.clear()
        os.ftruncate(self._file, 0)

    async def begin(self, directive: Directive, owner: str) -> Begun:
        begun = await super().begin(directive, owner)
        if begun.mine:
            self._note(directive, owner)
        return begun

    async def finish(self, directive: Directive, result: Result) -> None:
        await super().finish(directive, result)
        self._strike_out(directive.key)

    async def forget(self, directive: Directive, owner: str) -> None:
        await super().forget(directive, owner)
        self._strike_out(directive.key)

    def _note(self, directive: Directive, owner: str) -> None:
        attempt = (directive.step_id, directive.attempt_no, directive.lease_id)
        line = orjson.dumps((directive.job_id, *attempt, owner)) + b"\n"
        if len(line) <= _SLOT:
            slot = self._free.pop() if self._free else len(self._slots)
            self._slots[directive.key] = slot
            self._write(slot, line)

    def _strike_out(self, key: AttemptKey) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._free.append(slot)
            self._write(slot, b"\n")

    def _write(self, slot: int, line: bytes) -> None:
        start = slot * _SLOT
        with suppress(OSError):  # a full disk: the work goes on without its note
            mapped = self._mapped
            if mapped is None or len(mapped) <= start:
                mapped = self._grown(start)
            mapped[start : start + len(line)] = line

    def _grown(self, start: int) -> mmap.mmap:
        """The file with room from there on. It is written first: a full disk must not be met in memory."""
        os.pwrite(self._file, bytes(_SLOT * _SLOTS), start)
        self._unmap()
        self._mapped = mmap.mmap(self._file, start + _SLOT * _SLOTS)
        return self._mapped

    def _unmap(self) -> None:
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None

    def close(self) -> None:
        self._unmap()
        os.close(self._file)
