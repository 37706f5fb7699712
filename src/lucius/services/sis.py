"""SIS: answers a set of prompts from the passages that fit them best, `sis/result.json`."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import log
from typing import Any, Final

from lucius.platform import Output, Service, SyncTask
from lucius.services.embedding import EmbeddingOptions
from lucius.services.endpoint import AnswerEndpoint, Prompt, SisOptions
from lucius.services.passages import Index, Passage, vectors_of
from lucius.services.sheets import MAX_VECTORS, TEXT_MEMORY, TEXT_TIME, asked_for, modestly, words

# Which passages fit a prompt, and which sentence of them answers it.

MOST: Final = 4
"""Passages that are read for an answer."""
RELEVANT: Final = 0.25
"""A sentence below this score answers nothing."""
BESIDE_THE_POINT: Final = 0.5
"""What a sentence counts that has no name, moment or number where the question asks for one."""
OF_MEANING: Final = 0.5
"""How much of a score is likeness of vectors; the rest is words in common, rare ones first."""


@dataclass(frozen=True, slots=True)
class Source:
    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class BestFit:
    """`sentence` is None where nothing fits; the sources are those that fit best."""

    sentence: str | None
    source: Source | None
    sources: list[Source]


class Retrieval:
    def __init__(self, index: Index) -> None:
        self._index = index
        lines = [line for passage in index.passages for line in passage.text.splitlines()]
        seen = Counter(word for line in lines for word in set(words(line)))
        self._rarity = {word: log(1 + len(lines) / count) for word, count in seen.items()}
        self._unknown = log(1 + len(lines))

    def found(self, prompt: str) -> BestFit:
        passages = self._index.passages
        scores = self._scores(prompt, [each.text for each in passages], self._index.vectors)
        best = sorted(range(len(passages)), key=lambda place: -scores[place])[:MOST]
        sources = [Source(passages[place], round(scores[place], 4)) for place in best]
        return self._answered(prompt, sources)

    def _answered(self, prompt: str, sources: list[Source]) -> BestFit:
        said = [(text, each) for each in sources for text in each.passage.text.splitlines()]
        texts = [text for text, _ in said]
        scores = self._scores(prompt, texts, vectors_of(texts, self._index.dimensions))
        asked = asked_for(prompt)

        def rank(place: int) -> tuple[float, int]:
            fits = asked is None or asked.search(texts[place]) is not None
            return scores[place] * (1 if fits else BESIDE_THE_POINT), len(texts[place])

        best = max(range(len(said)), key=rank)
        if rank(best)[0] < RELEVANT:
            return BestFit(None, None, sources)
        source = Source(said[best][1].passage, round(scores[best], 4))
        return BestFit(texts[best], source, sources)

    def _scores(self, prompt: str, texts: list[str], vectors: "object") -> list[float]:
        import numpy as np

        asked = set(words(prompt))
        (vector,) = vectors_of([prompt], self._index.dimensions)
        likeness = (np.asarray(vectors) @ vector).tolist()
        return [
            OF_MEANING * max(alike, 0.0) + (1 - OF_MEANING) * self._shared(asked, text)
            for alike, text in zip(likeness, texts, strict=True)
        ]

    def _shared(self, asked: set[str], text: str) -> float:
        """The part of the prompt's words that the text has, by their rarity."""
        weight = {word: self._rarity.get(word, self._unknown) for word in asked}
        shared = sum(weight[word] for word in asked & set(words(text)))
        return shared / (sum(weight.values()) or 1.0)


QUOTED: Final = "the passages"
ASKED_AT_ONCE: Final = 4
"""Prompts that an endpoint is asked at the same time, so that fifty fit into the time limit."""


class Sis(Service):
    """`endpoint` writes the answers from the passages; without one the best sentence is the answer."""

    name = "sis"
    step_types = ("SIS",)
    payload_model = SisOptions

    isolation = "process"
    input_limit = MAX_VECTORS
    time_limit = TEXT_TIME
    memory_limit = TEXT_MEMORY

    def __init__(self, endpoint: AnswerEndpoint | None = None) -> None:
        self._endpoint = endpoint
        self.private = endpoint is not None

    def execute(self, task: SyncTask) -> Output:
        options: SisOptions = task.payload
        with modestly():
            index = read_index(task.latest())
            answers = []
            for answer in self._answers(options.prompts(), Retrieval(index)):
                task.check_cancelled()
                answers.append(answer)
            result = {
                "jobId": task.job_id,
                "passages": len(index.passages),
                "answered_by": self._endpoint.model if self._endpoint else QUOTED,
                "answers": answers,
            }
            task.stage("result.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        return Output(name="result.json")

    def _answers(self, prompts: list[Prompt], retrieval: Retrieval) -> Iterator[dict[str, Any]]:
        found = (retrieval.found(prompt.prompt) for prompt in prompts)
        if self._endpoint is None:
            yield from map(self._answer, prompts, found)
            return
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            yield from pool.map(self._answer, prompts, found)

    def _answer(self, prompt: Prompt, found: BestFit) -> dict[str, Any]:
        """An endpoint is always asked, and given the passages that fit best, however little they do."""
        cited = found.source or (found.sources[0] if self._endpoint else None)
        head = {"id": prompt.id, "prompt": prompt.prompt}
        if cited is None:
            nothing = {"answer": None, "page": None, "passage": None}
            return {**head, **nothing, "score": 0.0, "sources": []}
        return {
            **head,
            "answer": self._said(prompt, found, cited.passage),
            "page": cited.passage.page,
            "passage": cited.passage.number,
            "score": cited.score,
            "sources": [_shown(source) for source in found.sources],
        }

    def _said(self, prompt: Prompt, found: BestFit, cited: Passage) -> Any:
        """Text, or an object that cites a page and a passage: the best, where it cites none of those."""
        here = {"page": cited.page, "passage": cited.number}
        if self._endpoint is None:
            quoted = found.sentence
            return quoted if prompt.answer == "text" else {"text": quoted, **here}
        passages = [each.passage for each in found.sources]
        said = self._endpoint.answer(prompt, passages)
        if prompt.answer == "text":
            return said
        known = [{"page": each.page, "passage": each.number} for each in passages]
        cites = {name: said.get(name) for name in here} in known
        return said if cites else {**said, **here}


def _shown(source: Source) -> dict[str, Any]:
    passage = asdict(source.passage)
    return {"passage": passage.pop("number"), **passage, "score": source.score}


def read_index(data: bytes) -> Index:
    """The vectors of the step before, or a document that has none yet."""
    try:
        value = json.loads(data) if data.lstrip().startswith(b"{") else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and isinstance(value.get("passages"), list):
        return Index.from_json(value)
    return EmbeddingOptions().index(data)
