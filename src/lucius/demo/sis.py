"""SIS: answers a set of prompts with the sentences that fit them best, `sis/result.json`."""

import json
from collections import Counter
from dataclasses import dataclass
from math import log
from typing import Any, Final

from lucius.demo.embedding import EmbeddingOptions
from lucius.demo.text import MEMORY_LIMIT, TIME_LIMIT, Index, document_pages, sentences, words
from lucius.platform import Output, Service, SyncTask

LOOKED_AT: Final = 4
"""How many chunks are read for an answer."""


@dataclass(frozen=True, slots=True)
class SisOptions:
    prompt_set: list[str]

    def validate(self) -> None:
        if not 1 <= len(self.prompt_set) <= 50:
            raise ValueError("/prompt_set: must have 1 to 50 prompts")


class Sis(Service):
    name = "sis"
    step_types = ("SIS",)
    payload_model = SisOptions

    isolation = "process"
    time_limit = TIME_LIMIT
    memory_limit = MEMORY_LIMIT

    def execute(self, task: SyncTask) -> Output:
        options: SisOptions = task.payload
        index = read_index(task.latest())
        weights = rarity(index)
        answers = []
        for prompt in options.prompt_set:
            task.check_cancelled()
            answers.append(answer(prompt, index, weights))
        result = {"jobId": task.job_id, "chunks": len(index.chunks), "answers": answers}
        task.stage("result.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        return Output(name="result.json")


def read_index(data: bytes) -> Index:
    """The vectors of the step before, or a document that has none yet."""
    try:
        return Index.from_json(json.loads(data))
    except (ValueError, KeyError, TypeError):
        options = EmbeddingOptions()
        text = "\n".join(document_pages(data))
        return Index.of(text, options.chunk_size, options.dimensions)


def rarity(index: Index) -> dict[str, float]:
    """A word that is everywhere says little."""
    seen = Counter(word for chunk in index.chunks for word in set(words(chunk)))
    return {word: log(1 + len(index.chunks) / count) for word, count in seen.items()}


def answer(prompt: str, index: Index, weights: dict[str, float]) -> dict[str, Any]:
    asked = set(words(prompt))
    best: tuple[float, int, str] = (0.0, -1, "")
    for number in index.nearest(prompt, LOOKED_AT):
        for sentence in sentences(index.chunks[number]):
            score = sum(weights.get(word, 0.0) for word in asked & set(words(sentence)))
            if score > best[0]:
                best = (score, number, sentence)
    score, number, sentence = best
    if number < 0:
        return {"prompt": prompt, "answer": None, "chunk": None, "score": 0.0}
    return {"prompt": prompt, "answer": sentence, "chunk": number, "score": round(score, 4)}
