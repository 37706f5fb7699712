"""`lucius demo`: one document through three steps, twice, in processes as a user has them."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_succeeds_and_can_be_repeated(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lucius.cli.main", "demo", "--data", str(tmp_path)]
    plain = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert plain.returncode == 0, plain.stderr
    assert "job IN_PROGRESS->SUCCEEDED" in plain.stdout
    assert "18,400 crowns" in plain.stdout
    again = subprocess.run(
        [*command, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 0, again.stderr
    answer = json.loads(again.stdout)
    assert answer["job"]["state"] == "SUCCEEDED"
    assert answer["job"]["jobId"] not in plain.stdout
    assert len(answer["output"]["answers"]) == 3
    assert answer["job"]["final_output"]["uri"] == (tmp_path / "output/result.json").as_uri()


def test_the_demo_does_not_follow_the_settings_of_a_server_that_runs_beside_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "lucius.cli.main", "demo", "--data", str(tmp_path), "--json"]
    beside = {"LUCIUS_AUTH": "keys", "LUCIUS_URL": "http://127.0.0.1:9", "LUCIUS_DATA_DIR": "/x"}
    environment = {**os.environ, **beside}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_document_that_cannot_be_read_ends_the_demo_with_1(tmp_path: Path) -> None:
    document = tmp_path / "empty.pdf"
    document.write_bytes(b"%PDF-1.4\n%%EOF\n")
    command = [sys.executable, "-m", "lucius.cli.main", "demo", "--data", str(tmp_path / "data")]
    words = [*command, "--document", str(document)]
    failed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1, failed.stderr
    assert "FAILED_FINAL" in failed.stderr
    assert "final output" not in failed.stdout
