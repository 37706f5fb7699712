"""The page of failure modes names tests and guards that exist, and leaves none out."""

import re
from pathlib import Path

from tests.faults.engines import ELSEWHERE, OUTBOX_ONLY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/failure-modes.md").read_text()
BOTH = PAGE[PAGE.index("## On both engines") : PAGE.index("## What is not prevented")]
ROWS = {row.split(" | ")[0][2:]: row for row in PAGE.splitlines() if row.startswith("| FM_")}
KINDS = ("reproduce", "prevent", "recover")


def written() -> set[str]:
    """The names of all tests that there are."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}


def named(text: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", text)


def test_the_modes_are_numbered_without_a_gap() -> None:
    assert list(ROWS) == [f"FM_{number:03}" for number in range(1, len(ROWS) + 1)]


def test_every_test_that_the_page_names_exists() -> None:
    assert set(named(PAGE)) <= written()


def test_every_test_of_a_failure_mode_is_in_its_row() -> None:
    for name in sorted(name for name in written() if re.match(r"test_fm_\d", name)):
        row = ROWS["FM_" + name[8:11]]
        assert name in named(row), name


def test_every_mode_is_reproduced_prevented_and_recovered_from() -> None:
    for mode, row in ROWS.items():
        for kind in KINDS:
            (cell,) = re.findall(rf"{kind}: ([^<|]+)", row)
            assert named(cell), f"{mode} names no test to {kind}"
            wrong = [n for n in named(cell) if n.startswith("test_fm_") and f"_{kind}_" not in n]
            assert not wrong, f"{mode} names {wrong} to {kind}"


def test_every_guard_that_the_page_points_to_exists() -> None:
    for mode, row in ROWS.items():
        pointers = re.findall(r"`([a-z_/]+\.py):(\w+)`", row)
        assert pointers, f"{mode} names no guard"
        for path, name in pointers:
            source = (ROOT / "src/lucius" / path).read_text()
            found = re.search(rf"^\s*(async def|def|class) {name}\b|^{name}\b", source, re.M)
            assert found, f"{mode}: there is no {name} in {path}"


def untold() -> dict[str, set[str]]:
    """By file, the stories of the page that are not told on the stage, which has both engines."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text()
        told = set(re.findall(r"@staged\nasync def (test_\w+)", text))
        mine = set(re.findall(r"def (test_\w+)", text)) & set(named(PAGE)) - told
        if mine:
            found[file.relative_to(ROOT).as_posix()] = mine
    return found


def test_every_story_runs_on_both_engines_or_the_page_says_why_not() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", BOTH, re.M))
    assert rows == OUTBOX_ONLY | ELSEWHERE
    assert set(OUTBOX_ONLY) <= set(named("".join(ROWS.values())))
    assert set(untold()) == set(ELSEWHERE)
