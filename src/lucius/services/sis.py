"""SIS: answers a set of prompts from the passages that fit them best, `sis/result.json`."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Final

from lucius.platform import Output, Service, SyncTask
from lucius.services.embedding import EmbeddingOptions
from lucius.services.endpoint import AnswerEndpoint
from lucius.services.index import Index
from lucius.services.limits import MAX_VECTORS, TEXT_MEMORY, TEXT_TIME, modestly
from lucius.services.passages import Passage
from lucius.services.prompts import Prompt, SisOptions
from lucius.services.retrieval import BestFit, Retrieval, Source

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
