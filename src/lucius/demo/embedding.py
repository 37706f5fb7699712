"""EMBEDDING: from text to one vector for each chunk, `embedding/vectors.json`."""

import json
from dataclasses import dataclass

from lucius.demo.text import MEMORY_LIMIT, TIME_LIMIT, Index, document_pages
from lucius.platform import Output, Service, SyncTask


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    chunk_size: int = 240
    dimensions: int = 128

    def validate(self) -> None:
        if not 16 <= self.chunk_size <= 8192:
            raise ValueError("/chunk_size: must be between 16 and 8192")
        if not 8 <= self.dimensions <= 4096:
            raise ValueError("/dimensions: must be between 8 and 4096")


class Embedding(Service):
    name = "embedding"
    step_types = ("EMBEDDING",)
    payload_model = EmbeddingOptions

    isolation = "process"
    time_limit = TIME_LIMIT
    memory_limit = MEMORY_LIMIT

    def execute(self, task: SyncTask) -> Output:
        options: EmbeddingOptions = task.payload
        text = "\n".join(document_pages(task.latest()))
        index = Index.of(text, options.chunk_size, options.dimensions)
        task.stage("vectors.json", json.dumps(index.to_json(), ensure_ascii=False))
        return Output(name="vectors.json")
