"""A document that is made to stop the server costs its own job; everyone else is served meanwhile."""

from pathlib import Path
from typing import Any

import httpx

from tests.cli.up import Up, up
from tests.services.hostile import without_end

SAMPLE = Path(__file__).parents[2] / "src/lucius/cli/examples/sample.pdf"


def submit(client: httpx.Client, document: Path, request_type: str = "OCR") -> str:
    envelope = {
        "tenant_id": "t",
        "request_type": request_type,
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


def test_documents_without_end_stop_neither_the_others_nor_the_end(tmp_path: Path) -> None:
    """Ten of them at once: some at work, the rest waiting. Reading is not held up, nor is EMBEDDING."""
    (tmp_path / "sample.pdf").write_bytes(SAMPLE.read_bytes())
    content = without_end()
    with up(tmp_path, LUCIUS_DRAIN_SECONDS="0.1") as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            endless = []
            for number in range(10):
                (tmp_path / f"endless{number}.pdf").write_bytes(content)
                endless.append(submit(client, tmp_path / f"endless{number}.pdf"))
            begun(server, client, endless[0])
            other = submit(client, tmp_path / "sample.pdf", "EMBEDDING")
            assert job(client, other, 60)["state"] == "SUCCEEDED", server.log()
            assert {job(client, each)["state"] for each in endless} <= {
                "DISPATCHING",
                "IN_PROGRESS",
            }
            assert client.get("/healthz").status_code == 200
            ready = client.get("/readyz").json()
            assert (ready["status"], ready.get("warnings", {})) == ("ready", {})
            assert client.post(f"/v1/jobs/{endless[0]}:cancel").status_code < 300
            assert job(client, endless[0], 60)["state"] == "CANCELLED", server.log()
        assert server.stop() == 0, server.log()
