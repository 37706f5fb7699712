"""Without the libraries of `lucius[services]` a server runs, says so, and workers may pull."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from lucius.app.services import named_service
from lucius.app.settings import Settings, load_settings
from lucius.cli.main import main
from tests.cli.installed import lucius_with
from tests.cli.up import clean_environment

SENTENCE = "the services OCR, EMBEDDING and SIS are not installed ("


def command(*words: str) -> list[str]:
    return [*lucius_with("runtime"), *words]


def test_up_says_what_is_missing_and_offers_the_pull_gateway(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command("up", "--port", "0", "--json"),
            cwd=tmp_path,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=out,
        )
    try:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        envelope = {
            "tenant_id": "t",
            "request_type": "OCR",
            "input_ref": (tmp_path / "in.pdf").as_uri(),
            "output_ref": (tmp_path / "out.txt").as_uri(),
            "payload": {},
            "schema_version": "v1",
        }
        with httpx.Client(base_url=ready["url"], timeout=60) as client:
            job_id = client.post("/v1/orchestrate", json=envelope).json()["jobId"]
            wanted = {"max": 1, "wait_seconds": 20}
            pulled = client.post("/v1/services/ocr/directives:pull", json=wanted).json()
        assert [each["jobId"] for each in pulled["directives"]] == [job_id]
    finally:
        server.terminate()
        server.communicate(timeout=60)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (said,) = [line["message"] for line in lines if line["message"].startswith(SENTENCE)]
    assert "pip install 'lucius[services]'" in said
    assert "POST /v1/services/{service}/directives:pull" in said


def test_what_needs_them_ends_at_once_with_the_same_sentence(tmp_path: Path) -> None:
    environment = clean_environment(LUCIUS_BUS_BACKEND="nats")
    for words in (
        ["demo", "--data", str(tmp_path), "--document", __file__],
        ["service", "run", "lucius.services:Ocr", "--data", str(tmp_path)],
    ):
        done = subprocess.run(
            command(*words),
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert SENTENCE in " ".join(done.stderr.split())


@pytest.mark.parametrize("installed", [True, False])
def test_the_azure_stack_runs_them_in_processes_or_says_what_is_missing(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    async def serve_azure(settings: Settings, *, services: Sequence[str], **_: Any) -> None:
        started.extend(services)

    monkeypatch.setattr("lucius.app.azure_stack.serve_azure", serve_azure)
    monkeypatch.setattr("lucius.services.LIBRARIES", () if installed else ("no_such_library",))
    words = ["up", "--stack", "azure", "--data", str(tmp_path), "--service", "mine:Own"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    *packaged, own = started
    assert own == "mine:Own"
    made = [named_service(name, load_settings({})).name for name in packaged]
    assert made == (["ocr", "embedding", "sis"] if installed else [])
    assert (SENTENCE in done.output) is not installed
