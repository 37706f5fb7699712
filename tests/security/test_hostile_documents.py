"""A document that is made to stop the server costs its own job; everyone else is served meanwhile."""

from pathlib import Path
from typing import Any

import httpx

from tests.cli.up import Up, up
from tests.services.hostile import without_end

SAMPLE = Path(__file__).parents[2] / "examples" / "sample.pdf"


def submit(client: httpx.Client, document: Path) -> str:
    envelope = {
        "tenant_id": "t",
        "request_type": "OCR",
        "input_ref": document.as_uri(),
        "output_ref": document.with_suffix(".out").as_uri(),
        "payload": {},
        "schema_version": "v1",
    }
    answer = client.post("/v1/orchestrate", json=envelope)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


def job(client: httpx.Client, job_id: str, seconds: int = 0) -> dict[str, Any]:
    path = f"/v1/jobs/{job_id}"
    found: dict[str, Any] = client.get(path, params={"wait_seconds": seconds}).json()
    return found


def begun(server: Up, client: httpx.Client, job_id: str) -> None:
    while job(client, job_id)["state"] != "IN_PROGRESS":
        assert client.get("/healthz").status_code == 200, server.log()


def test_a_document_without_end_stops_neither_the_others_nor_the_end(tmp_path: Path) -> None:
    (tmp_path / "endless.pdf").write_bytes(without_end())
    (tmp_path / "sample.pdf").write_bytes(SAMPLE.read_bytes())
    with up(tmp_path, LUCIUS_DRAIN_SECONDS="0.1") as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            endless = submit(client, tmp_path / "endless.pdf")
            begun(server, client, endless)
            other = job(client, submit(client, tmp_path / "sample.pdf"), 60)
            assert other["state"] == "SUCCEEDED", other
            assert job(client, endless)["state"] == "IN_PROGRESS"
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").json()["status"] == "ready"
        assert server.stop() == 0, server.log()
