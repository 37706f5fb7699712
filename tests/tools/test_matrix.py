"""`make matrix` finds the Pythons that LUCIUS says it runs on."""

import sys
from pathlib import Path

import pytest

from tools.matrix import interpreters, supported


def test_the_supported_pythons_are_those_of_the_project() -> None:
    assert supported() == ["3.11", "3.12", "3.13"]
    support = (Path(__file__).parents[2] / "SUPPORT.md").read_text("utf-8")
    assert f"| {', '.join(supported())} | tested |" in support


@pytest.mark.slow
def test_each_interpreter_is_found_once_and_shims_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "{}.{}".format(*sys.version_info)
    for folder in ("bin", "again", "shims", "broken"):
        (tmp_path / folder).mkdir()
        here = tmp_path / folder / f"python{version}"
        here.symlink_to("/bin/false" if folder == "broken" else sys.executable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(
        "PATH", ":".join(str(tmp_path / each) for each in ("shims", "broken", "bin", "again"))
    )
    ((found, path),) = interpreters()
    assert (found, path.parent.name) == ("{}.{}.{}".format(*sys.version_info), "bin")
