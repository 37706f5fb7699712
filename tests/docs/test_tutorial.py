"""The tutorial's commands, in their order, against a real server on a free port."""

import shutil
import subprocess
from pathlib import Path

import pytest

from lucius.app.lifecycle import free_port
from tests.cli.up import clean_environment
from tests.docs.blocks import Block, blocks_of, script_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src/lucius/cli/examples", tmp_path / "examples")
    return tmp_path


def test_the_tutorial_works_as_it_stands(folder: Path) -> None:
    port = str(free_port())
    page = PAGE.read_text("utf-8").replace("lucius up", f"lucius up --port {port}")
    environment = clean_environment(LUCIUS_URL=f"http://127.0.0.1:{port}")
    done = subprocess.run(
        ["bash", "-c", script_of(page)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + logs(folder)
    for said in ("18,400 crowns", "the same command as before", "no jobs", "!!!", "clean"):
        assert said in done.stdout
    for said in ("INVALID_PAYLOAD", "/payload/prompt_set", "OBJECT_MISSING"):
        assert said in done.stderr
    assert (folder / "count.txt").read_text().split() == ["4"]
    assert (folder / "shouted.txt").read_text().isupper()


def logs(folder: Path) -> str:
    names = ("server.log", "worker.log")
    return "".join((folder / name).read_text() for name in names if (folder / name).exists())


def test_every_shell_block_of_the_tutorial_is_run() -> None:
    for block in blocks_of(PAGE.read_text("utf-8")):
        assert block.kind in ("run", "fails", "server", "worker", "file"), block.info


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        ("sh run", "run"),
        ("sh run fails", "fails"),
        ("sh server", "server"),
        ("python file=a.py", "file"),
        ("text", ""),
        ("sh", ""),
    ],
)
def test_the_info_string_says_what_a_block_is(info: str, kind: str) -> None:
    assert Block(info, "").kind == kind
