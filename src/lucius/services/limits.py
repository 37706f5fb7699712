"""What one document may cost. A process that takes more is ended, and only its own step fails."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from lucius.platform.service import cores

MIB: Final = 1024 * 1024
OCR_TIME: Final = timedelta(minutes=30)
"""A scanned page takes a core two to three seconds."""
TEXT_TIME: Final = timedelta(minutes=10)
OCR_PAGES: Final = min(cores(), 16)
"""Pages that are recognised at once, in all documents together: each takes up to 400 MB."""


def ocr_memory(pages: int) -> int:
    """Bytes of one process. Each of them may hold all pages that are recognised at once."""
    return max(2048, 448 + 400 * pages) * MIB


OCR_MEMORY: Final = ocr_memory(OCR_PAGES)
TEXT_MEMORY: Final = 1536 * MIB
"""An eighth of it is what a process may keep between two documents: libraries and models fit in."""
MAX_DOCUMENT: Final = 64 * MIB
"""Bytes of a document as it is sent."""
MAX_VECTORS: Final = 128 * MIB
"""Bytes of what EMBEDDING writes: 20,000 passages with their text and 256 numbers each fit in."""
MAX_TEXT: Final = 16 * MIB
"""Characters in all pages of a document."""
MAX_PAGES: Final = 2000
MAX_PIXELS: Final = 100_000_000
"""Of one image: 300 MB once it is unpacked."""
MAX_SIDE: Final = 2000
"""Pixels of a page's longer side, however large the page says it is."""
MAX_PASSAGES: Final = 20_000
NICENESS: Final = 10


@contextmanager
def modestly() -> Iterator[None]:
    """Computing waits for whoever answers requests on the same cores, and keeps no memory."""
    os.nice(max(0, NICENESS - os.nice(0)))
    try:
        yield
    finally:
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
