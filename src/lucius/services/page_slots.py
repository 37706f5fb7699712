"""Pages that are recognised at once: as many as there are cores, whichever documents they are of.

So one document alone uses all cores, and ten together take no more memory than one. The processes of a
service inherit the slots from the one that forked them. A slot is a lock, and dies with whoever held it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

LOOK_SECONDS: Final = 0.02
"""Between two looks for a free slot; a page takes seconds."""


class PageSlots:
    """Where the system has no files in memory, pages do not wait for each other."""

    def __init__(self, count: int) -> None:
        in_memory = hasattr(os, "memfd_create")
        self._files = [os.memfd_create("page slot") for _ in range(count)] if in_memory else []

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a free slot, and hold it. Opening a file again gives a lock of one's own."""
        handles = [os.open(f"/proc/self/fd/{file}", os.O_RDWR) for file in self._files]
        try:
            while handles and not any(map(_locked, handles)):
                time.sleep(LOOK_SECONDS)
            yield
        finally:
            for handle in handles:
                os.close(handle)


def _locked(handle: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
