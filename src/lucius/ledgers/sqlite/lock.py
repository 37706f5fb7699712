"""The right to write a ledger file: one process has it, by an advisory lock beside the file."""

import fcntl
import os
from pathlib import Path

from lucius.core.errors import LedgerLockedError


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
