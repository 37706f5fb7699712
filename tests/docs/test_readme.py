"""The README's commands, and what its question is answered with; the places that CONTRIBUTING names."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.up import LUCIUS, Up, clean_environment, up

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
OTHER_TERMINAL = "In another terminal:"


def commands() -> list[str]:
    """The indented lines below `In another terminal:`, continued lines joined, comments dropped."""
    below = README.partition(OTHER_TERMINAL)[2].lstrip("\n")
    block = re.match(r"(?: {4}.*\n)+", below)
    assert block is not None
    lines = block[0].replace("\\\n", " ").splitlines()
    return [re.sub(r" +#.*", "", line).strip() for line in lines]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Up]:
    shutil.copytree(ROOT / "src/lucius/cli/examples", tmp_path / "examples")
    with up(tmp_path) as server:
        yield server


def run(server: Up, folder: Path, command: str) -> str:
    done = subprocess.run(
        command.replace(".venv/bin/lucius", LUCIUS),
        shell=True,
        cwd=folder,
        env=clean_environment(LUCIUS_URL=server.url),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_commands_of_the_readme_work_and_its_question_is_answered(
    server: Up, tmp_path: Path
) -> None:
    submit, *others = commands()
    job_id = run(server, tmp_path, submit).split()[0]
    assert len(others) >= 4
    for command in others:
        said = run(server, tmp_path, re.sub(r"\bJOB\b", job_id, command))
        assert re.search("SUCCEEDED|clean|18,400 crowns", said)
    result = json.loads((tmp_path / f"examples/sample.pdf.{job_id}.result.json").read_text())
    assert all(answer["answer"] for answer in result["answers"]), "a question with an answer"


def test_the_first_commands_of_the_readme_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"^ {4}make ([a-z]+)", README, re.MULTILINE)
    assert {"demo", "test", "setup"} <= set(named) <= targets


def test_the_places_that_contributing_names_are_there() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Where things are")[2]
    named = [name for row in table.splitlines() if row.startswith("| `") for name in
             re.findall(r"`([^`]+)`", row.split("|")[1])]  # fmt: skip
    assert len(named) > 8
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "src/lucius" / name).exists(), name
