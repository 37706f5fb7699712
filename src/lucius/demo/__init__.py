"""Three small services on the platform kit: the text of a document, its vectors, answers from both."""

from lucius.demo.embedding import Embedding
from lucius.demo.ocr import Ocr
from lucius.demo.sis import Sis

SERVICES = (Ocr, Embedding, Sis)

__all__ = ["SERVICES", "Embedding", "Ocr", "Sis"]
