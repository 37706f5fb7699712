"""One word names one thing: a second type of a known name, or a second meaning, costs every reader a look."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/lucius"
SPEAKS_ANOTHER_TONGUE = "standins"
"""A stand-in for somebody else's server uses that server's words."""
STILL_DOUBLE = {"Locks", "Plan", "Row", "Session", "Waiter"}
"""Found when this test was written. A name may leave this list; none joins it."""


def types_of(source: str) -> Iterator[str]:
    """Classes, and aliases that are named like one."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            names = (target.id for target in node.targets if isinstance(target, ast.Name))
            yield from (name for name in names if name[:1].isupper() and not name.isupper())


def doubles(root: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        if SPEAKS_ANOTHER_TONGUE not in path.parts:
            for name in types_of(path.read_text("utf-8")):
                found[name].append(str(path.relative_to(root)))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_types_share_a_name() -> None:
    shared = {name: paths for name, paths in doubles(SOURCE).items() if name not in STILL_DOUBLE}
    assert shared == {}, "find a better word for one of them"


def test_two_types_of_one_name_are_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Phase: ...\nKey = tuple[str, int]\nLIMIT = 3\n")
    (tmp_path / "other.py").write_text("class Key: ...\nLIMIT = 4\nclass Other: ...\n")
    assert doubles(tmp_path) == {"Key": ["one.py", "other.py"]}


def test_the_glossary_explains_each_word_once() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text("utf-8")
    words = re.findall(r"^\| ([^|]+?) \|", glossary, re.MULTILINE)
    assert len(words) > 50
    assert [word for word, times in Counter(words).items() if times > 1] == []
