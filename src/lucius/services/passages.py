"""Pages cut into passages of whole sentences, each with the end of the one before it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap

from lucius.platform import FatalError
from lucius.services.limits import MAX_PASSAGES
from lucius.services.words import sentences


@dataclass(frozen=True, slots=True)
class Passage:
    number: int
    """From 1, through all pages."""
    page: int
    text: str
    """A line for each sentence."""


def passages_of(pages: Mapping[int, str], size: int, overlap: int) -> list[Passage]:
    """No passage has more than `size` characters, and none goes beyond its page."""
    made: list[Passage] = []
    for page, text in sorted(pages.items()):
        for part in _parts(text, size, overlap):
            made.append(Passage(len(made) + 1, page, part))
            if len(made) > MAX_PASSAGES:
                raise FatalError(
                    f"the document has more than {MAX_PASSAGES} passages of {size} characters:"
                    " raise `chunk_size`",
                    code="DOCUMENT_TOO_LARGE",
                )
    return made


def _parts(text: str, size: int, overlap: int) -> Iterator[str]:
    part: list[str] = []
    for piece in _pieces(text, size):
        if part and _length(part) + 1 + len(piece) > size:
            yield "\n".join(part)
            part = _tail(part, min(overlap, size - len(piece) - 1))
        part.append(piece)
    if part:
        yield "\n".join(part)


def _pieces(text: str, size: int) -> Iterator[str]:
    """Sentences; one that is too long is cut between words, and a word where it must be."""
    for sentence in sentences(text):
        yield from wrap(sentence, size, break_on_hyphens=False)


def _length(part: list[str]) -> int:
    return sum(map(len, part)) + len(part) - 1


def _tail(part: list[str], room: int) -> list[str]:
    """The last sentences that fit; the last words, where not even one does."""
    if whole := _fitting(part, room):
        return whole
    words = _fitting(part[-1].split(" "), room)
    return [" ".join(words)] if words else []


def _fitting(pieces: list[str], room: int) -> list[str]:
    taken = -1
    for start in range(len(pieces) - 1, -1, -1):
        taken += len(pieces[start]) + 1
        if taken > room:
            return pieces[start + 1 :]
    return pieces
