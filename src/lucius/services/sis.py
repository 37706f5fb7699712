"""SIS: answers a set of prompts from the passages that fit them best, `sis/result.json`."""

import json
from dataclasses import asdict
from typing import Any

from lucius.platform import Output, Service, SyncTask
from lucius.services.embedding import EmbeddingOptions
from lucius.services.endpoint import AnswerEndpoint
from lucius.services.index import Index
from lucius.services.limits import MAX_VECTORS, TEXT_MEMORY, TEXT_TIME, modestly
from lucius.services.prompts import Prompt, SisOptions
from lucius.services.retrieval import BestFit, Retrieval, Source

QUOTED = "the passages"


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
            retrieval, answers = Retrieval(index), []
            for prompt in options.prompts():
                task.check_cancelled()
                answers.append(self._answer(prompt, retrieval.found(prompt.prompt)))
            result = {
                "jobId": task.job_id,
                "passages": len(index.passages),
                "answered_by": self._endpoint.model if self._endpoint else QUOTED,
                "answers": answers,
            }
            task.stage("result.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        return Output(name="result.json")

    def _answer(self, prompt: Prompt, found: BestFit) -> dict[str, Any]:
        """An endpoint is always asked, and given the passages that fit best, however little they do."""
        cited = found.source or (found.sources[0] if self._endpoint else None)
        head = {"id": prompt.id, "prompt": prompt.prompt}
        if cited is None:
            nothing = {"answer": None, "page": None, "passage": None}
            return {**head, **nothing, "score": 0.0, "sources": []}
        return {
            **head,
            "answer": self._said(prompt, found),
            "page": cited.passage.page,
            "passage": cited.passage.number,
            "score": cited.score,
            "sources": [_shown(source) for source in found.sources],
        }

    def _said(self, prompt: Prompt, found: BestFit) -> Any:
        if self._endpoint is not None:
            return self._endpoint.answer(prompt, [each.passage for each in found.sources])
        if prompt.answer == "text" or found.source is None:
            return found.sentence
        cited = found.source.passage
        return {"text": found.sentence, "page": cited.page, "passage": cited.number}


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
