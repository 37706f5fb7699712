"""Each failure mode of the page is reproduced, prevented and recovered from, on both engines if possible."""

import re
from pathlib import Path

import pytest

from tests.faults.engines import ELSEWHERE, OTHER_NAMES, OUTBOX_ONLY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/failure-modes.md").read_text("utf-8")
MODES = re.findall(r"^\| (FM_\d{3}) \|", PAGE, re.MULTILINE)
KINDS = ("reproduce", "prevent", "recover")
FILES = {
    file.relative_to(ROOT).as_posix(): file.read_text("utf-8")
    for file in sorted((ROOT / "tests").rglob("test_*.py"))
}
WRITTEN = {name for text in FILES.values() for name in re.findall(r"def (test_\w+)", text)}


def stories(mode: str, kind: str) -> set[str]:
    beginning = f"test_{mode.lower()}_{kind}_"
    others = OTHER_NAMES.get(mode, {}).get(kind, [])
    return {name for name in WRITTEN if name.startswith(beginning)} | set(others)


def test_the_modes_are_numbered_without_a_gap_and_no_test_has_another_number() -> None:
    assert [f"FM_{number:03}" for number in range(1, len(MODES) + 1)] == MODES
    numbered = {found[1].upper() for name in WRITTEN if (found := re.match(r"test_(fm_\d+)", name))}
    assert numbered | OTHER_NAMES.keys() == set(MODES)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_reproduced_prevented_and_recovered_from(mode: str, kind: str) -> None:
    assert stories(mode, kind), f"no test to {kind} {mode}"
    assert stories(mode, kind) <= WRITTEN


def test_every_story_runs_on_both_engines_or_the_table_says_why_not() -> None:
    told = {name for mode in MODES for kind in KINDS for name in stories(mode, kind)}
    assert set(OUTBOX_ONLY) <= told
    untold = {
        file
        for file, text in FILES.items()
        if set(re.findall(r"def (test_\w+)", text))
        & told - set(re.findall(r"@staged\nasync def (test_\w+)", text))
    }
    assert untold == set(ELSEWHERE)
