"""The compiled build: the package with its hot modules as extension modules, never beside the sources."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tools.dist import tree

ROOT = Path(__file__).parents[2]
TESTS = (
    "callbacks",
    "control",
    "drafts",
    "packed",
    "recorded",
    "retries",
    "routing",
    "stages",
    "wire",
)
pytestmark = pytest.mark.xdist_group("compiled")


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    mine = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=mine | environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def installed(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    how = ("--no-deps", "--no-build-isolation", "--no-index", "--target", "there")
    return run(folder, "-m", "pip", "install", "-v", *how, ".", **environ)


def extension_modules(folder: Path) -> list[Path]:
    return [each for suffix in EXTENSION_SUFFIXES for each in folder.rglob(f"*{suffix}")]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Unoptimised, which is compiled in half of the time."""
    folder = tree(tmp_path_factory.mktemp("compiled") / "tree")
    built = installed(folder, LUCIUS_COMPILED="1", MYPYC_OPT_LEVEL="0")
    assert built.returncode == 0, built.stdout[-4000:]
    yield folder
    shutil.rmtree(folder)


def test_the_core_behaves_the_same(compiled: Path) -> None:
    there = str(compiled / "there")
    version = run(ROOT, "-m", "lucius", "--version", PYTHONPATH=there)
    assert "(compiled)" in version.stdout, version.stdout
    files = [f"tests/core/test_{name}.py" for name in TESTS]
    how = ("-p", "no:cacheprovider", "-m", "not of_the_sources", "-x")
    tests = run(ROOT, "-m", "pytest", *how, *files, PYTHONPATH=there)
    assert tests.returncode == 0, tests.stdout[-4000:]


def test_nothing_compiled_is_beside_the_sources(compiled: Path) -> None:
    assert not extension_modules(compiled / "src")
    assert not extension_modules(ROOT / "src"), (
        "they would hide changes of the sources: remove them"
    )
    assert extension_modules(compiled / "there")


def test_a_changed_source_is_what_runs_though_a_build_is_there(compiled: Path) -> None:
    source = compiled / "src" / "lucius" / "core" / "decide.py"
    source.write_text(source.read_text() + "\nCHANGED = True\n")
    seen = "from lucius.core import decide; print(hasattr(decide, 'CHANGED'), decide.__file__)"
    found = run(compiled, "-c", seen, PYTHONPATH=str(compiled / "src"))
    assert found.stdout.split() == ["True", str(source)], found.stdout


@pytest.mark.parametrize("command", ["editable_wheel", "build_ext"])
def test_only_a_wheel_is_compiled(tmp_path: Path, command: str) -> None:
    """Not an editable install, and not `build_ext --inplace`."""
    folder = tree(tmp_path / "tree")
    inplace = ("--inplace",) if command == "build_ext" else ()
    built = run(folder, "setup.py", command, *inplace, LUCIUS_COMPILED="1")
    assert built.returncode == 0, built.stdout[-4000:]
    assert not extension_modules(folder)


def test_without_a_compiler_the_modules_stay_python(tmp_path: Path) -> None:
    folder = tree(tmp_path / "tree")
    built = installed(folder, LUCIUS_COMPILED="auto", CC="no-such-compiler")
    assert built.returncode == 0, built.stdout[-4000:]
    assert "no module is compiled: there is no C compiler (no-such-compiler)" in built.stdout
    version = run(ROOT, "-m", "lucius", "--version", PYTHONPATH=str(folder / "there"))
    assert "(pure Python)" in version.stdout, version.stdout
    assert not extension_modules(folder)


def test_a_build_that_must_be_compiled_says_what_to_install(tmp_path: Path) -> None:
    folder = tree(tmp_path / "tree")
    built = installed(folder, LUCIUS_COMPILED="1", CC="no-such-compiler")
    assert built.returncode != 0
    assert "apt install gcc" in built.stdout
    assert not (folder / "there").exists()
