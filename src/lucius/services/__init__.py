"""The packaged services: the text of a document, its vectors, and answers from both.

They need the libraries of `lucius[services]`, and import them only when they work.
"""

from importlib.util import find_spec
from typing import Final

from lucius.services.embedding import Embedding
from lucius.services.ocr import Ocr
from lucius.services.sis import Sis

LIBRARIES: Final = ("numpy", "PIL", "pypdfium2", "rapidocr", "wordllama")

__all__ = ["LIBRARIES", "Embedding", "Ocr", "Sis", "missing"]


def missing() -> list[str]:
    """The libraries that are not installed here."""
    return [name for name in LIBRARIES if find_spec(name) is None]
