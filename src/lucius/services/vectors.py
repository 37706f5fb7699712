"""Texts as vectors of length 1, by a model that comes inside its package."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
