"""Which passages fit a prompt, and which sentence of them answers it."""

from collections import Counter
from dataclasses import dataclass
from math import log
from typing import Final

from lucius.services.index import Index
from lucius.services.passages import Passage
from lucius.services.vectors import vectors_of
from lucius.services.words import asked_for, words

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
        if scores[best] < RELEVANT:
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
