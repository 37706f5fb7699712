"""Decisions: each title has the number of its file, and whoever names a decision names one that is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/decisions"
DECISIONS = {path.name[:4]: path for path in sorted(FOLDER.glob("*.md"))}
WRITTEN = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
SPOKEN_OF = re.compile(r"(?:\bdecision |decisions/|\]\(|\[)(0\d{3})\b")


@pytest.mark.parametrize("number", DECISIONS)
def test_a_decision_has_its_number_in_its_title_and_says_what_was_asked(number: str) -> None:
    text = DECISIONS[number].read_text("utf-8")
    assert re.match(rf"# {number}\. \w", text)
    assert "**Question.**" in text
    assert "**Decision.**" in text


def test_numbers_that_are_named_are_those_of_decisions() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), number)
        for path in [*WRITTEN, *(ROOT / "src").rglob("*.py")]
        for number in SPOKEN_OF.findall(path.read_text("utf-8"))
    }
    assert len(named) > 10
    assert {each for each in named if each[1] not in DECISIONS} == set()
