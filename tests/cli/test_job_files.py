"""`lucius job files`: what the steps of a job have made, whether it is files or not."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.up import LUCIUS, clean_environment, up

SERVICE = """
from lucius.platform import Output, Service, Task


class Shout(Service):
    name = "shout"
    step_types = ("SHOUT", "AGAIN")

    async def execute(self, task: Task) -> Output:
        text = (await task.latest()).decode()
        await task.stage("output.txt", text.upper() + "!")
        return Output()
"""
PROTOCOL = """
step_types:
  SHOUT: {service: shout}
  AGAIN: {service: shout}
protocols:
  - {request_type: TWICE, protocol_id: twice, steps: [SHOUT, AGAIN]}
"""


def lucius(folder: Path, *words: str, **env: str) -> Any:
    done = subprocess.run(
        [LUCIUS, *words], cwd=folder, env=clean_environment(**env), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kept", ["all", "final"])
def test_outputs_are_listed_and_copied(tmp_path: Path, kept: str) -> None:
    """The second step reads what the first one made, and the job's own output is a file in both cases."""
    (tmp_path / "shouting.py").write_text(SERVICE)
    (tmp_path / "protocols.yaml").write_text(PROTOCOL)
    (tmp_path / "in.txt").write_text("hello")
    env = {
        "LUCIUS_WORKSPACE_FILES": kept,
        "LUCIUS_PROTOCOLS": "protocols.yaml",
        "LUCIUS_INPUT_ROOTS": str(tmp_path),
        "LUCIUS_OUTPUT_ROOTS": str(tmp_path),
    }
    options = ("--data", "data", "--no-services", "--service", "shouting:Shout")
    with up(tmp_path, *options, **env) as server:
        env["LUCIUS_URL"] = server.url
        words = ("--type", "TWICE", "--tenant", "t", "--input", "in.txt", "--output", "out.txt")
        job = json.loads(lucius(tmp_path, "submit", *words, "--wait", "--json", **env))
        assert (tmp_path / "out.txt").read_text() == "HELLO!!"
        asked = ("job", "files", job["jobId"], "--data", "data")
        listed = json.loads(lucius(tmp_path, *asked, "--json", **env))
        names = {each["name"]: each["size"] for each in listed["files"]}
        assert sorted(names.values()) == [6, 7]
        shown = lucius(tmp_path, *asked, "--to", "copies", **env)
        assert "2 written to copies" in shown
        copies = {name: (tmp_path / "copies" / name).read_text() for name in names}
        assert sorted(copies.values()) == ["HELLO!", "HELLO!!"]
        wrong = [LUCIUS, "job", "files", job["jobId"], "--data", "elsewhere"]
        refused = subprocess.run(
            wrong, cwd=tmp_path, env=clean_environment(**env), capture_output=True, text=True
        )
        assert refused.returncode == 1, "another directory's workspaces are no answer"
        assert "--data" in refused.stderr
        workspace = tmp_path / "data/workspace"
        assert len(list(workspace.rglob("output.txt"))) == (2 if kept == "all" else 0)
    assert lucius(tmp_path, "verify", "--data", "data", **env) == "clean\n"
