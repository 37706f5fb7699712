"""The wheel as users have it: built once, installed with its pins into an environment that knows no clone."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.cli.up import Up, clean_environment
from tests.tools.test_requirements import pins
from tools.dist import build

ROOT = Path(__file__).parents[2]
EPOCH = 1_700_000_000
OF_PROJECTS = ("iniconfig", "packaging", "pluggy", "pygments", "pytest")
"""What the tests of a new project need; the extra `test` of its pyproject.toml names pytest."""


class Installed:
    """An environment with the wheel in it, and an empty folder to work in."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.bin = environment / "bin"
        self.folder = folder
        self.environ = clean_environment(PATH=f"{self.bin}{os.pathsep}{os.defpath}")

    def run(
        self, *words: str, folder: str = ".", **environ: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.folder / folder,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    def up(self) -> Up:
        return _Up(self)


class _Up(Up):
    def __init__(self, installed: Installed) -> None:
        self._program = [str(installed.bin / "lucius")]
        super().__init__(installed.folder, PATH=installed.environ["PATH"])

    def program(self) -> list[str]:
        return self._program


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    return build(tmp_path_factory.mktemp("dist") / "out", EPOCH)


@pytest.fixture(scope="session")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The pins are those of this environment, so its files are linked: fetching takes minutes."""
    folder = tmp_path_factory.mktemp("installed")
    environment = folder / "environment"
    _done(sys.executable, "-m", "venv", "--without-pip", str(environment))
    _link({*pins("services.txt"), *OF_PROJECTS}, environment)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python")]
    _done(*pip, "install", "--quiet", "--no-deps", "--no-index", str(built[1]))
    _done(*pip, "check")
    work = folder / "work"
    work.mkdir()
    return Installed(environment, work)


def _link(names: set[str], environment: Path) -> None:
    here, there = (
        Path(sysconfig.get_path("purelib", vars={"base": str(base), "platbase": str(base)}))
        for base in (sys.prefix, environment)
    )
    for found in metadata.distributions(path=[str(here)]):
        if canonicalize_name(found.name) in names:
            for file in found.files or ():
                if file.parts[0] != "..":
                    (there / file).parent.mkdir(parents=True, exist_ok=True)
                    _linked(here / file, there / file)


def _linked(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # the temporary folder is on another disk
        shutil.copy(source, target)


def _done(*words: str) -> None:
    done = subprocess.run(words, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
