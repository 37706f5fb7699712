"""EMBEDDING: from text to a vector for each passage, `embedding/vectors.json`."""

from dataclasses import dataclass

from lucius.platform import Output, Service, SyncTask
from lucius.services.documents import text_pages
from lucius.services.passages import DIMENSIONS, Index
from lucius.services.sheets import MAX_DOCUMENT, TEXT_MEMORY, TEXT_TIME, modestly


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    chunk_size: int = 480
    """Characters of a passage at most."""
    overlap: int | None = None
    """Characters at most that a passage repeats of the one before it. None: a quarter of a passage."""
    dimensions: int = DIMENSIONS[-1]

    def validate(self) -> None:
        if not 16 <= self.chunk_size <= 8192:
            raise ValueError("/chunk_size: must be between 16 and 8192")
        if not 0 <= self.repeated < self.chunk_size:
            raise ValueError("/overlap: must be at least 0 and less than chunk_size")
        if self.dimensions not in DIMENSIONS:
            raise ValueError(f"/dimensions: must be one of {', '.join(map(str, DIMENSIONS))}")

    @property
    def repeated(self) -> int:
        return self.chunk_size // 4 if self.overlap is None else self.overlap

    def index(self, data: bytes) -> Index:
        return Index.of(text_pages(data), self.chunk_size, self.repeated, self.dimensions)


class Embedding(Service):
    name = "embedding"
    step_types = ("EMBEDDING",)
    payload_model = EmbeddingOptions

    isolation = "process"
    input_limit = MAX_DOCUMENT
    time_limit = TEXT_TIME
    memory_limit = TEXT_MEMORY

    def execute(self, task: SyncTask) -> Output:
        options: EmbeddingOptions = task.payload
        with modestly():
            task.stage("vectors.json", options.index(task.latest()).to_json())
        return Output(name="vectors.json")
