"""The passages of a document and their vectors, as EMBEDDING writes them and SIS reads them."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lucius.platform import FatalError
from lucius.services.passages import Passage, passages_of
from lucius.services.vectors import DIMENSIONS, MODEL, vectors_of

if TYPE_CHECKING:
    from lucius.services.vectors import Vectors

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
