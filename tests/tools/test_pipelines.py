"""The pipelines: no weakness that is known, and nothing in them but commands that a developer has too."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.matrix import supported

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
WEAK = """
on: pull_request_target
jobs:
  weak:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v4
      - run: echo ${{ github.event.pull_request.title }}
"""


def looked_at(folder: Path) -> subprocess.CompletedProcess[str]:
    """By zizmor, without asking the network. A file that is no workflow is an error."""
    zizmor = Path(sys.executable).parent / "zizmor"
    words = [str(zizmor), "--offline", "--pedantic", "--strict-collection", "--quiet", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    return tmp_path


def test_no_weakness_is_known(pipelines: Path) -> None:
    found = looked_at(pipelines)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("text", [WEAK, "jobs: [no workflow]"])
def test_a_weak_pipeline_is_found(pipelines: Path, text: str) -> None:
    (pipelines / ".github/workflows/weak.yml").write_text(text)
    assert looked_at(pipelines).returncode != 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_commands_are_targets_of_make(path: Path) -> None:
    text = re.sub(r"^ *#.*$", "", path.read_text("utf-8"), flags=re.MULTILINE)
    used = re.findall(r"uses: (\S+)", text)
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used)
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    made = {word for words in re.findall(r"\bmake ([a-z -]+)", text) for word in words.split()}
    assert made <= targets
    assert not re.search(r"publish|docker push|twine|helm push|secrets\.", text), (
        "nothing is published"
    )


def test_the_pythons_of_the_matrix_are_those_of_the_project() -> None:
    checks = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text("utf-8"))
    assert checks["jobs"]["matrix"]["strategy"]["matrix"]["python"] == supported()


def test_pre_commit_runs_what_make_check_runs() -> None:
    (recipe,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    lines = recipe.replace("$(BIN)", ".venv/bin").replace("$(CODE)", "src tests bench tools")
    ours = [line.strip() for line in lines.splitlines()]
    ours = [re.sub(r"^\$\(if \$\(wildcard tools\),(.*)\)$", r"\1", line) for line in ours]
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [each["entry"] for each in config["repos"][0]["hooks"]] == ours
