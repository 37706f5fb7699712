"""Pages cut into passages of whole sentences, each with the end of the one before it."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lucius.platform import FatalError
from lucius.services.sheets import MAX_PASSAGES, sentences

# Texts as vectors of length 1, by a model that comes inside its package.

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors: TypeAlias = "NDArray[np.float32]"

MODEL: Final = "wordllama-l2-supercat"
DIMENSIONS: Final = (64, 128, 256)
"""The model was trained so that its first numbers are a smaller vector."""


@cache
def _model() -> Any:
    import wordllama

    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)


def vectors_of(texts: Sequence[str], dimensions: int) -> "Vectors":
    """One row a text. A text without words has a row of zeros."""
    import numpy as np

    rows = np.asarray(_model().embed(list(texts)), dtype=np.float32)[:, :dimensions]
    rows = np.nan_to_num(rows)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1.0
    unit: Vectors = rows / lengths
    return unit


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


# The passages of a document and their vectors, as EMBEDDING writes them and SIS reads them.

DECIMALS: Final = 5


@dataclass(frozen=True)
class Index:
    passages: list[Passage]
    vectors: "Vectors"

    @property
    def dimensions(self) -> int:
        return int(self.vectors.shape[1])

    @classmethod
    def of(cls, pages: Mapping[int, str], size: int, overlap: int, dimensions: int) -> "Index":
        passages = passages_of(pages, size, overlap)
        return cls(passages, vectors_of([each.text for each in passages], dimensions))

    def to_json(self) -> str:
        rows = zip(self.passages, self.vectors.tolist(), strict=True)
        passages = [
            {
                "passage": passage.number,
                "page": passage.page,
                "text": passage.text,
                "vector": [round(number, DECIMALS) for number in row],
            }
            for passage, row in rows
        ]
        head = {"model": MODEL, "dimensions": self.dimensions}
        return json.dumps({**head, "passages": passages}, ensure_ascii=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Index":
        """FatalError: vectors that cannot be compared with those of the prompts."""
        import numpy as np

        if value.get("model") != MODEL or value.get("dimensions") not in DIMENSIONS:
            raise _invalid(
                f"they are of the model {value.get('model')!r} with {value.get('dimensions')!r}"
                f" dimensions; SIS compares those of {MODEL}"
            )
        try:
            rows = value["passages"]
            passages = [Passage(int(r["passage"]), int(r["page"]), str(r["text"])) for r in rows]
            vectors = np.array([row["vector"] for row in rows], dtype=np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise _invalid(f"a passage is not as EMBEDDING writes it: {error!r}") from error
        shaped = vectors.shape == (len(passages), value["dimensions"])
        if not passages or not shaped or not math.isfinite(float(vectors.sum())):
            raise _invalid(f"not every passage has {value['dimensions']} numbers")
        return cls(passages, vectors)


def _invalid(reason: str) -> FatalError:
    return FatalError(f"the vectors cannot be used: {reason}", code="INVALID_VECTORS")
