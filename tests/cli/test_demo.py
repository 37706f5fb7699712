"""`lucius demo`: a scan and a text PDF through three steps, in processes as a user has them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from lucius.cli.demo import answer_lines
from lucius.cli.watching import standing
from tests.cli.installed import lucius_with

ROOT = Path(__file__).parents[2]
DEMO = [*lucius_with("services"), "demo", "--data"]
"""`make demo` installs what the services need, and nothing that only tests need."""


def run(*words: str, **beside: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, **beside}
    return subprocess.run(
        [*DEMO, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_demo_can_be_repeated_and_follows_no_settings_of_a_server_beside_it(
    tmp_path: Path,
) -> None:
    data = tmp_path / ".lucius" / "demo"
    words = [str(data), "--json", "--document", "src/lucius/cli/examples/sample.pdf"]
    beside = {"LUCIUS_AUTH": "keys", "LUCIUS_URL": "http://127.0.0.1:9", "LUCIUS_DATA_DIR": "/x"}
    jobs = set()
    for more in ({}, beside):
        done = run(*words, **more)
        assert done.returncode == 0, done.stderr
        (answer,) = json.loads(done.stdout)["runs"]
        assert len(answer["output"]["answers"]) == 3
        output = (data / "output/sample.pdf.json").as_uri()
        assert answer["job"]["final_output"]["uri"] == output
        jobs.add(answer["job"]["jobId"])
    assert len(jobs) == 2
    assert data.parent.stat().st_mode & 0o077 == 0


def test_a_document_that_cannot_be_read_ends_the_demo_with_1(tmp_path: Path) -> None:
    document = tmp_path / "empty.pdf"
    document.write_bytes(b"%PDF-1.4\n%%EOF\n")
    words = [str(tmp_path / "data"), "--document", str(document)]
    failed = run(*words, "--prompt", "What does it say?")
    assert failed.returncode == 1, failed.stderr
    assert "FAILED_FINAL" in failed.stderr
    assert "all of it" not in failed.stdout
    unasked = run(*words)
    assert (unasked.returncode, "--prompt" in unasked.stderr) == (2, True)


def job(*states: str) -> dict[str, Any]:
    steps = [{"step_id": f"step{n}", "state": state} for n, state in enumerate(states)]
    return {"steps": steps}


def test_the_bar_counts_steps_that_have_succeeded_and_names_the_next() -> None:
    assert standing(job("PENDING", "PENDING")) == (0, "step0")
    assert standing(job("SUCCEEDED", "IN_PROGRESS")) == (1, "step1")
    assert standing(job("SUCCEEDED", "SUCCEEDED")) == (2, "done")


def test_a_question_without_an_answer_is_shown_as_that() -> None:
    answer: dict[str, Any] = {"prompt": "Why?", "answer": None, "page": None, "passage": None}
    assert "the document does not say" in answer_lines(answer)[2]
