"""Words, sentences, chunks and vectors: enough language for a demonstration, the same on every machine."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import sqrt
from typing import Any, Final
from zlib import crc32

from lucius.demo.pdf import UnreadablePdfError, pdf_pages
from lucius.platform import FatalError

TIME_LIMIT: Final = timedelta(seconds=60)
MEMORY_LIMIT: Final = 512 * 1024 * 1024
MAX_DOCUMENT: Final = 16 * 1024 * 1024
"""Bytes. Beyond this, words and vectors of one document would not fit into the memory."""

_WORD: Final = re.compile(r"\w+")
_BREAK: Final = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_ENDING: Final = re.compile(r"(?<=\w{3})(?:ings?|ed|es|s|e)$")
_COMMON: Final = frozenset(
    _WORD.findall(
        "a an and are as at be by do does for from has have how i in is it its may must of on or"
        " that the their then there they this to was what when where which who whom whose why will"
        " with"
    )
)


def document_pages(data: bytes, limit: int | None = None) -> list[str]:
    """The pages of a PDF, or a text file as one page."""
    if len(data) > MAX_DOCUMENT:
        raise FatalError(
            f"the document has {len(data)} bytes; {MAX_DOCUMENT} are read at most",
            code="DOCUMENT_TOO_LARGE",
        )
    if not data.startswith(b"%PDF-"):
        try:
            return [data.decode("utf-8-sig")]
        except UnicodeDecodeError as error:
            raise FatalError("neither a PDF nor text", code="UNSUPPORTED_DOCUMENT") from error
    try:
        return pdf_pages(data, limit)
    except UnreadablePdfError as error:
        raise FatalError(str(error), code="UNSUPPORTED_DOCUMENT") from error


def words(text: str) -> list[str]:
    """In lower case, without the commonest ones and without the commonest endings."""
    found = (word.lower() for word in _WORD.findall(text))
    return [_ENDING.sub("", word) for word in found if word not in _COMMON]


def sentences(text: str) -> list[str]:
    parts = (" ".join(part.split()) for part in _BREAK.split(text))
    return [part for part in parts if part]


def chunks(text: str, size: int) -> list[str]:
    """Whole sentences up to `size` characters; a longer sentence is cut between words."""
    made: list[str] = []
    for piece in _pieces(text, size):
        if made and len(made[-1]) + 1 + len(piece) <= size:
            made[-1] += " " + piece
        else:
            made.append(piece)
    return made


def _pieces(text: str, size: int) -> Iterable[str]:
    for sentence in sentences(text):
        if len(sentence) <= size:
            yield sentence
        else:
            yield from sentence.split(" ")


def vector(text: str, dimensions: int) -> list[float]:
    """A hashed bag of words, of length 1."""
    sums = [0.0] * dimensions
    for word in words(text):
        code = crc32(word.encode())
        sums[code % dimensions] += 1.0 if code & 0x8000_0000 else -1.0
    length = sqrt(sum(value * value for value in sums)) or 1.0
    return [round(value / length, 6) for value in sums]


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@dataclass(frozen=True, slots=True)
class Index:
    """The chunks of a document and their vectors."""

    dimensions: int
    chunks: tuple[str, ...]
    vectors: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, text: str, chunk_size: int, dimensions: int) -> "Index":
        parts = tuple(chunks(text, chunk_size))
        return cls(dimensions, parts, tuple(tuple(vector(part, dimensions)) for part in parts))

    @classmethod
    def from_json(cls, value: Any) -> "Index":
        rows = value["chunks"]
        vectors = tuple(tuple(map(float, row["vector"])) for row in rows)
        return cls(int(value["dimensions"]), tuple(str(row["text"]) for row in rows), vectors)

    def to_json(self) -> dict[str, Any]:
        rows = zip(self.chunks, self.vectors, strict=True)
        return {
            "dimensions": self.dimensions,
            "chunks": [{"text": text, "vector": list(values)} for text, values in rows],
        }

    def nearest(self, text: str, limit: int) -> list[int]:
        """The numbers of the chunks most like the text, best first."""
        asked = vector(text, self.dimensions)
        order = sorted(
            range(len(self.chunks)), key=lambda n: (-likeness(asked, self.vectors[n]), n)
        )
        return order[:limit]
