"""A sheet: a page on its way through OCR. It is the text of its page, or a picture that must be read."""

import ctypes
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lucius.platform import FatalError
from lucius.platform.service import cores

if TYPE_CHECKING:
    from numpy.typing import NDArray


# What one document may cost. A process that takes more is ended, and only its own step fails.

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


# Which pages of a document are read: the first ones, or those that are named, such as `1-3,7`.

_RANGES: Final = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")


@dataclass(frozen=True, slots=True)
class PageChoice:
    pages: int | str | None = None
    """How many from the first on, or their numbers as text. None: all."""

    def validate(self) -> None:
        if isinstance(self.pages, int) and self.pages < 1:
            raise ValueError("/pages: must be at least 1")
        if isinstance(self.pages, str) and not _RANGES.fullmatch(self.pages):
            raise ValueError("/pages: must be page numbers and ranges, such as 1-3,7")

    def of(self, count: int) -> Sequence[int]:
        """The numbers of the chosen pages of a document with so many."""
        if count < 1:
            raise FatalError("the document has no pages", code="EMPTY_DOCUMENT")
        chosen = self._chosen(count)
        if not chosen:
            raise FatalError(
                f"/pages: {self.pages} names none of the {count} pages", code="PAGES_OUT_OF_RANGE"
            )
        if len(chosen) > MAX_PAGES:
            raise FatalError(
                f"the document has {count} pages; {MAX_PAGES} are read at most: choose some with"
                " the payload's `pages`",
                code="DOCUMENT_TOO_LARGE",
            )
        return chosen

    def _chosen(self, count: int) -> Sequence[int]:
        if not isinstance(self.pages, str):
            return range(1, min(count, self.pages or count) + 1)
        named: set[int] = set()
        for part in self.pages.split(","):
            first, _, last = part.partition("-")
            named.update(range(max(int(first), 1), min(int(last or first), count) + 1))
        return sorted(named)


# Words and sentences, enough of them to compare a question with a text.

_WORD: Final = re.compile(r"[^\W_]+")
_BREAK: Final = re.compile(r"(?<=[.!?])\s+|\n\s*\n|(?<=[。！？])|(?<=[a-z][.!?])(?=[A-Z][a-z])")
_ENDING: Final = re.compile(r"(?<=\w{3})(?:ings?|ed|es|s|e)$")
_COMMON: Final = frozenset(
    _WORD.findall(
        "a an and are as at be by did do does for from had has have how i if in is it its long many"
        " may much must of on or that the their then there they this to was were what when where"
        " which who whom whose why will with would"
    )
)

_COUNT: Final = (
    "(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|fifty|hundred|thousand"
    "|million|dozen|half|third|quarter|tenth)"
)
_NUMBER: Final = re.compile(rf"\d|\b{_COUNT}\b", re.IGNORECASE)
_MOMENT: Final = re.compile(
    rf"\d|\b(?:noon|midnight|\w{{3,6}}day|(?:at|after|before|by|until|within) {_COUNT})\b",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"(?<=[^\d.!?] )(?!\w{3,6}day\b)[A-Z][a-z]+")
"""A capital inside of a sentence, but for days, and months after a number."""
_ASKED_FOR: Final = (
    (re.compile(r"\W*who(?:m|se)?\b", re.IGNORECASE), _NAME),
    (re.compile(r"\W*when\b", re.IGNORECASE), _MOMENT),
    (re.compile(r"\W*how (?:much|many|long|big|far|old|soon|quickly)\b", re.IGNORECASE), _NUMBER),
)


def asked_for(prompt: str) -> re.Pattern[str] | None:
    """What an answer has in it, by the English word that the question begins with."""
    return next((kind for word, kind in _ASKED_FOR if word.match(prompt)), None)


def has_words(text: str) -> bool:
    return _WORD.search(text) is not None


def words(text: str) -> list[str]:
    """In lower case, without the commonest ones and without the commonest endings."""
    found = (word.lower() for word in _WORD.findall(text))
    return [_ENDING.sub("", word) for word in found if word not in _COMMON]


def sentences(text: str) -> list[str]:
    parts = (" ".join(part.split()) for part in _BREAK.split(text))
    return [part for part in parts if part]


Picture: TypeAlias = "NDArray[Any]"
"""Rows of pixels, blue first."""
Sheet: TypeAlias = "str | Picture"
Sheets: TypeAlias = Iterator[tuple[int, "Sheet"]]
"""With the numbers of their pages."""
