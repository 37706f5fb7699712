"""The generated pages say what the code says."""

from pathlib import Path

import pytest

from tools.generate import PAGES, main, outdated, write


def test_the_generated_pages_are_up_to_date() -> None:
    assert outdated() == [], "run `make docs`"


def test_check_names_the_page_that_is_out_of_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(tmp_path) == list(PAGES)
    assert main(["--check"], tmp_path) == 0
    (tmp_path / "docs/reference/states.md").write_text("an edge is missing")
    assert main(["--check"], tmp_path) == 1
    assert "docs/reference/states.md is out of date" in capsys.readouterr().err
