"""The counts of the tree, and the functions that one job enters."""

from pathlib import Path

from tools.measure import counted, traced

SOURCE = '''"""What it is for."""

# Why.
LIMIT = 3
"""In seconds."""


def first(value: int) -> int:
    """What it answers."""
    return value + LIMIT
'''


def test_lines_of_code_and_of_prose_are_told_apart(tmp_path: Path) -> None:
    package = tmp_path / "src" / "lucius" / "core"
    package.mkdir(parents=True)
    (package / "one.py").write_text(SOURCE)
    (package / "two.py").write_text(SOURCE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("three words here")
    (tmp_path / "docs" / "glossary.md").write_text("| word | meaning |\n|---|---|\n| job | one |\n")
    found = counted(tmp_path)
    assert found["source files"] == 2
    assert found["source lines of code"] == 2 * 3
    assert found["comments and docstrings, % of code"] == round(100 * 4 / 3, 1)
    assert found["functions"] == 2
    assert found["lines of a function, median"] == 3
    assert found["words of the glossary"] == 1
    assert found["words of documentation"] == 3 + 4


def test_the_way_of_one_job_leads_through_the_core_and_the_kit(tmp_path: Path) -> None:
    server, service = traced(tmp_path)
    assert {"decide", "submit"} <= {name for name, _ in server}
    assert "Attempt.run" in {name for name, _ in service}
    assert "Attempt.run" not in {name for name, _ in server}
