"""A step that kills its process harms nobody else: it pays for it, and the server goes on."""

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.up import Up
from tests.soon import soon

SERVICE = """
import os
from lucius.platform import Service

class Deadly(Service):
    name = "ocr"
    step_types = ("OCR",)

    async def execute(self, task):
        os._exit(9)
"""


def asked(server: Up, path: str, body: object = None) -> Any:
    content = json.dumps(body).encode() if body is not None else None
    request = Request(server.url + path, content, {"content-type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


@pytest.fixture
def command(tmp_path: Path) -> dict[str, object]:
    (tmp_path / "deadly.py").write_text(SERVICE)
    (tmp_path / "in.txt").write_text("text")
    return {
        "tenant_id": "tenant_a",
        "request_type": "OCR",
        "input_ref": (tmp_path / "in.txt").as_uri(),
        "output_ref": (tmp_path / "out.txt").as_uri(),
        "payload": {},
        "schema_version": "v1",
    }


def test_the_second_death_costs_an_attempt_however_soon_it_comes(
    tmp_path: Path, command: dict[str, object]
) -> None:
    words = ("--data", str(tmp_path / "data"), "--no-services", "--service", "deadly:Deadly")
    server = Up(tmp_path, *words)
    try:
        server.await_ready()
        job_id = asked(server, "/v1/orchestrate", command)["jobId"]

        def waits() -> bool:
            (step,) = asked(server, f"/v1/jobs/{job_id}/steps")["steps"]
            return bool(step["state"] == "FAILED_RETRY")

        assert soon(waits), "two processes have died by it"
        runs = asked(server, f"/v1/jobs/{job_id}/executions")["executions"]
        (step,) = asked(server, f"/v1/jobs/{job_id}/steps")["steps"]
        said = [e.get("data") or {} for e in asked(server, f"/v1/jobs/{job_id}/events")["events"]]
    finally:
        server.kill()
    assert [run["reason"] for run in runs] == ["process_died"] * 2, "the first one is free"
    assert step["attempt_no"] == 1
    assert [each for each in said if "outcome" in each] == [], (
        "nothing is done again that was begun"
    )
    assert server.log().count("ended with exit code 9") == 2
