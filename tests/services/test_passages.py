"""Passages keep their size, their page and every word; vectors have length 1; words find answers."""

import json
from itertools import pairwise

import numpy as np
import pytest

from lucius.platform import FatalError
from lucius.services import passages as module
from lucius.services.ocr import _in_lines
from lucius.services.passages import DIMENSIONS, Index, passages_of, vectors_of
from lucius.services.sheets import PageChoice, has_words, sentences, words
from lucius.services.sis import Retrieval

TEXT = "One two three. " * 20 + "word " * 200 + "x" * 150


def test_passages_lose_nothing_and_keep_their_size() -> None:
    made = passages_of({1: TEXT}, 64, 0)
    assert "".join("".join(each.text for each in made).split()) == "".join(TEXT.split())
    assert max(len(each.text) for each in made) <= 64


@pytest.mark.parametrize(("size", "overlap"), [(64, 20), (200, 199), (16, 15), (480, 120)])
def test_a_passage_repeats_the_end_of_the_one_before_it(size: int, overlap: int) -> None:
    made = passages_of({1: "The lamp burns. " * 40}, size, overlap)
    assert max(len(each.text) for each in made) <= size
    for before, after in pairwise(made):
        repeated = after.text.splitlines()[0] if size > 16 else ""
        assert before.text.endswith(repeated)


def test_sentences_that_are_longer_than_the_overlap_repeat_their_last_words() -> None:
    first, second, *_ = passages_of({1: "alpha beta gamma delta. epsilon zeta eta."}, 24, 6)
    assert (first.text, second.text) == ("alpha beta gamma delta.", "delta.\nepsilon zeta eta.")


def test_passages_are_numbered_through_and_none_goes_beyond_its_page() -> None:
    made = passages_of({1: "First page.", 3: "Third page. More of it."}, 16, 4)
    assert [(each.number, each.page) for each in made] == [(1, 1), (2, 3), (3, 3)]


def test_too_many_passages_are_refused_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PASSAGES", 3)
    with pytest.raises(FatalError, match="chunk_size"):
        passages_of({1: TEXT}, 16, 0)


@pytest.mark.parametrize("dimensions", DIMENSIONS)
def test_vectors_have_length_one_and_likeness_is_of_meaning(dimensions: int) -> None:
    rows = vectors_of(["The boat sails", "The ship sails", "A tax on salt", ""], dimensions)
    assert rows.shape == (4, dimensions)
    assert np.linalg.norm(rows[:3], axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
    assert np.isfinite(rows).all()


def test_an_index_survives_json() -> None:
    index = Index.of({1: "A lamp.", 2: "A lens. A horn."}, 16, 4, 64)
    again = Index.from_json(json.loads(index.to_json()))
    assert again.passages == index.passages
    assert again.vectors == pytest.approx(index.vectors, abs=1e-5)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When was the inspection?", "The date of the inspection is 2 March 2026."),
        ("How long was the inspection?", "The inspection of the light took two hours."),
        ("Who made the inspection?", "The inspection was led by Ingrid Dahl from Ellsund."),
        ("What followed the inspection?", "Repairs followed the inspection."),
    ],
)
def test_an_answer_has_the_moment_the_number_or_the_name_that_is_asked_for(
    question: str, answer: str
) -> None:
    said = (
        "Repairs followed the inspection. The inspection was led by Ingrid Dahl from Ellsund."
        " The inspection of the light took two hours. The date of the inspection is 2 March 2026."
    )
    found = Retrieval(Index.of({1: said}, 480, 0, 256)).found(question)
    assert found.sentence == answer


@pytest.mark.parametrize(
    ("pages", "chosen"),
    [(None, [1, 2, 3, 4]), (2, [1, 2]), (9, [1, 2, 3, 4]), ("2", [2]), ("3-9,1", [1, 3, 4])],
)
def test_pages_are_chosen_by_number_or_by_name(pages: int | str | None, chosen: list[int]) -> None:
    assert list(PageChoice(pages).of(4)) == chosen


def test_words_and_sentences() -> None:
    assert words("The keepers restored it") == ["keeper", "restor"]
    assert sentences("North side.The horn\nwas tested. 3.5 m\n\nNew") == [
        "North side.",
        "The horn was tested.",
        "3.5 m",
        "New",
    ]
    assert not has_words("_ … ☃")


def test_boxes_of_one_height_are_one_line_and_a_gap_begins_a_paragraph() -> None:
    def box(left: int, top: int) -> list[tuple[int, int]]:
        return [(left, top), (left + 50, top), (left + 50, top + 20), (left, top + 20)]

    found = [(box(0, 0), "Lamp"), (box(90, 4), "oil"), (box(0, 24), "next")]
    assert _in_lines([*found, (box(0, 90), "far below")]) == "Lamp oil\nnext\n\nfar below"
    assert _in_lines([]) == ""
