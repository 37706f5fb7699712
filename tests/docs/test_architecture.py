"""The page that walks one job through the files names files and names that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
NAMED = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)(?::(\w+))?`", PAGE)


def test_the_walk_is_long_enough_to_be_one() -> None:
    assert len({file for file, _ in NAMED}) >= 25


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda each: each or "-")
def test_each_file_is_there_and_has_what_is_named(file: str, name: str) -> None:
    text = (ROOT / "src/lucius" / file).read_text("utf-8")
    if name:
        assert re.search(rf"^\s*(?:async def|def|class) {name}\b", text, re.MULTILINE), name
