"""Backup of a ledger that is in use, and restore of one that is not. Either happens whole or not at all."""

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path

from lucius.adapters.ledgers.sqlite.schema import ForeignErrors, connect_readonly, probe, version_of
from lucius.core.errors import LedgerCorruptError, LedgerError, LedgerLockedError
from lucius.system.machine import private_folder

# The right to write a ledger file: one process has it, by an advisory lock beside the file.


class WriterLock:
    """Taken until released or until the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise LedgerLockedError(
                f"another process (pid {holder}) writes to {path}: stop it first"
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def write_backup(source: Path, target: Path) -> None:
    """Copy the ledger as of one commit to a single file that needs no log beside it."""
    probe(source)
    if target.exists() and target.samefile(source):
        raise LedgerError(f"{target} is the ledger itself")
    target.parent.mkdir(parents=True, exist_ok=True)
    _copy(source, target)


def restore(backup: Path, target: Path, *, force: bool = False) -> None:
    """Put a backup in the place of a ledger that nobody writes.

    The backup is examined first. An existing ledger is replaced only with `force`.
    """
    examine(backup)
    private_folder(target.parent)
    lock = WriterLock(target)
    try:
        if target.exists() and not force:
            raise LedgerError(f"{target} exists; say so explicitly to replace it")
        _copy(backup, target)
    finally:
        lock.release()


def examine(backup: Path) -> None:
    """LedgerCorruptError or LedgerTooNewError for a backup that must not be restored."""
    if not backup.exists() or backup.stat().st_size == 0:
        raise LedgerError(f"there is no backup at {backup}")
    probe(backup)
    with ForeignErrors(backup), contextlib.closing(connect_readonly(backup)) as conn:
        if not version_of(conn):
            raise LedgerCorruptError(f"{backup} is not a complete ledger")
        answer = conn.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if answer != "ok":
            raise LedgerCorruptError(f"{backup} is corrupt: {answer}")


def _copy(source: Path, target: Path) -> None:
    part = target.with_name(f"{target.name}.part-{os.getpid()}")
    part.unlink(missing_ok=True)
    part.touch(0o600)
    try:
        with ForeignErrors(source):
            _copy_pages(source, part)
        _sync(part)
        _forget_log(target)
        part.replace(target)
        _sync(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _copy_pages(source: Path, part: Path) -> None:
    """In one step, so that a writer does not make it start over; readers hold up no writer."""
    with (
        contextlib.closing(connect_readonly(source)) as live,
        contextlib.closing(sqlite3.connect(part, isolation_level=None)) as copy,
    ):
        live.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")


def _forget_log(target: Path) -> None:
    """A log of the file that was here must not be replayed onto the new one."""
    if not target.exists():
        return
    with (
        contextlib.suppress(sqlite3.Error, OSError),
        contextlib.closing(sqlite3.connect(target, isolation_level=None)) as conn,
    ):
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in ("-wal", "-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
