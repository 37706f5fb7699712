"""Nothing in the current folder is imported in place of a library, and nothing at all unless asked."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.up import LUCIUS, clean_environment, up

SAMPLE = Path(__file__).parents[2] / "src/lucius/cli/examples/sample.pdf"
HOSTILE = "import pathlib; pathlib.Path(__file__).with_name('imported').touch()\n"
LIBRARIES = (
    "json",
    "click",
    "orjson",
    "uvicorn",
    "yaml",
    "httpx",
    "uvloop",
    "sqlite3",
    "typing",
    "numpy",
)
MINE = HOSTILE + (
    "from lucius.platform import Output, Service\n"
    "class Mine(Service):\n"
    "    name = 'mine'\n"
    "    step_types = ('MINE',)\n"
    "    async def execute(self, task):\n"
    "        return Output()\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder such as somebody else may have prepared."""
    (tmp_path / "examples").mkdir()
    shutil.copy(SAMPLE, tmp_path / "examples")
    return with_libraries(tmp_path)


def with_libraries(folder: Path) -> Path:
    for name in LIBRARIES:
        (folder / f"{name}.py").write_text(HOSTILE)
    return folder


def with_package(folder: Path) -> Path:
    (folder / "lucius").mkdir()
    (folder / "lucius/__init__.py").write_text(HOSTILE.replace("__file__)", "__file__).parent"))
    return folder


def imported(folder: Path) -> bool:
    return (folder / "imported").exists()


def test_lucius_up_imports_nothing_from_the_current_folder(folder: Path) -> None:
    with up(with_package(folder)):
        pass
    assert not imported(folder)


def test_with_service_the_current_folder_comes_last(folder: Path) -> None:
    with_package(folder)
    (folder / "mine.py").write_text(MINE.replace(HOSTILE, ""))
    with up(folder, "--no-services", "--service", "mine:Mine"):
        pass
    assert not imported(folder)


def test_a_library_cannot_be_named_away(folder: Path) -> None:
    (folder / "json.py").write_text(MINE)
    words = [LUCIUS, "up", "--service", "json:Mine", "--port", "0"]
    run = subprocess.run(
        words, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 1
    assert "json:Mine cannot be loaded" in run.stderr
    assert not imported(folder)


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "lucius", "settings"),
        ("-m", "lucius", "keys", "list"),
        ("-m", "lucius", "demo", "--data", "data", "--document", "examples/sample.pdf"),
        ("-P", "-m", "lucius", "settings"),
    ],
    ids=" ".join,
)
def test_neither_does_the_module(folder: Path, words: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert run.returncode == 0, run.stderr
    assert not imported(folder)


def test_certify_starts_the_service_without_the_libraries_of_the_folder(folder: Path) -> None:
    with_package(folder)
    (folder / "mine.py").write_text(MINE.replace(HOSTILE, ""))
    run = subprocess.run(
        [LUCIUS, "certify", "mine:Mine", "--check", "ack-in-time"],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert not imported(folder)
