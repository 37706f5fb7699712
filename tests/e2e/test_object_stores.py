"""`lucius up` over S3: input, workspace and output in buckets, with the packaged services."""

import json
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import Any

import httpx
import pytest

from lucius.app.adapters import open_workspace
from lucius.app.settings import load_settings
from lucius.ports.workspace import Workspace
from tests.cli.up import LUCIUS, Up, clean_environment, up
from tests.s3_server import FORBIDDEN, S3Server, shared_s3

pytestmark = pytest.mark.xdist_group("stacks")
DOCUMENT = b"The lamp needs 40 litres of oil.\nThe keeper is paid on the first day of each month.\n"
QUESTION = "How much oil does the lamp need?"
STEPS = ("ocr", "embedding", "sis")
WAIT = 240


@dataclass
class Site:
    """A server over buckets of its own."""

    server: S3Server
    bucket: str
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        roots = [f"s3://{self.bucket}/in", "s3://not-there", f"s3://{FORBIDDEN}"]
        return {
            **self.server.known,
            "LUCIUS_S3_ENDPOINT": self.server.keyed,
            "LUCIUS_WORKSPACE_URL": f"s3://{self.bucket}/jobs",
            "LUCIUS_INPUT_ROOTS": ",".join(roots),
            "LUCIUS_OUTPUT_ROOTS": f"s3://{self.bucket}/out",
            "LUCIUS_EXECUTION_BACKOFF_SECONDS": "0.1,0.1",
            "LUCIUS_DATA_DIR": str(self.folder / "data"),
        }

    def opened(self) -> Workspace:
        return open_workspace(
            load_settings(self.env | {"LUCIUS_OUTPUT_ROOTS": f"s3://{self.bucket}"})
        )

    def command(self, name: str, place: str = "") -> dict[str, Any]:
        return {
            "tenant_id": "acme",
            "request_type": "OCR->EMBEDDING->SIS",
            "input_ref": place or f"s3://{self.bucket}/in/lamp.txt",
            "output_ref": f"s3://{self.bucket}/out/{name}.json",
            "payload": {"steps": {"sis": {"prompt_set": [QUESTION]}}},
            "schema_version": "v1",
        }


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    server = shared_s3()
    for name, value in server.known.items():
        monkeypatch.setenv(name, value)
    found = Site(server, server.bucket(), tmp_path)
    await found.opened().write(f"s3://{found.bucket}/in/lamp.txt", DOCUMENT)
    return found


def submitted(server: Up, command: dict[str, Any]) -> str:
    answer = httpx.post(f"{server.url}/v1/orchestrate", json=command, timeout=60)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


def ended(server: Up, job_id: str) -> dict[str, Any]:
    for _ in range(WAIT // 30):
        url = f"{server.url}/v1/jobs/{job_id}?wait_seconds=30"
        job: dict[str, Any] = httpx.get(url, timeout=60).json()
        if job["state"] in ("SUCCEEDED", "FAILED_FINAL", "CANCELLED"):
            return job
    raise AssertionError(f"{job}\n{server.log()}")


async def test_three_steps_read_and_write_buckets_and_survive_a_kill(site: Site) -> None:
    with up(site.folder, **site.env) as first:
        jobs = [submitted(first, site.command(str(number))) for number in range(4)]
        assert ended(first, jobs[0])["state"] == "SUCCEEDED"
        first.kill()
    with up(site.folder, **site.env) as second:
        found = [ended(second, job) for job in jobs]
        assert [job["state"] for job in found] == ["SUCCEEDED"] * 4, second.log()
        assert found[3]["final_output"]["uri"] == f"s3://{site.bucket}/out/3.json"
        assert second.stop() == 0
    objects = site.opened()
    for number, job_id in enumerate(jobs):
        content = await objects.read(f"s3://{site.bucket}/out/{number}.json")
        (answer,) = json.loads(content or b"")["answers"]
        assert "40 litres" in answer["answer"]
        folder = f"s3://{site.bucket}/jobs/lucius/acme/{job_id}/"
        listed = await objects.list(folder)
        assert sum("/_commits/" in uri for uri in listed) == len(STEPS), "one effect a step"
        for step in STEPS:
            assert any(uri.startswith(f"{folder}{step}/") for uri in listed)
    assert not (site.folder / "data" / "workspace").exists() or not list(
        (site.folder / "data" / "workspace").rglob("job_*")
    ), "nothing of the work is on this machine"


def why(server: Up, job_id: str) -> str:
    words = [LUCIUS, "why", job_id, "--url", server.url]
    return run(words, env=clean_environment(), capture_output=True, text=True, check=False).stdout


async def test_what_is_missing_or_forbidden_fails_with_a_code_and_why_says_what_helps(
    site: Site,
) -> None:
    cases = {
        f"s3://{site.bucket}/in/none.txt": ("OBJECT_MISSING", "there is no object"),
        "s3://not-there/x.txt": ("BUCKET_MISSING", "create it"),
        f"s3://{FORBIDDEN}/x.txt": ("STORAGE_ACCESS_DENIED", "AWS_SECRET_ACCESS_KEY"),
        f"s3://{site.bucket}/elsewhere/x.txt": ("REFERENCE_REFUSED", "LUCIUS_INPUT_ROOTS"),
    }
    with up(site.folder, **site.env) as server:
        jobs = {place: submitted(server, site.command("x", place)) for place in cases}
        for place, (code, help_) in cases.items():
            job = ended(server, jobs[place])
            assert (job["state"], job["error_code"]) == ("FAILED_FINAL", code), job
            said = why(server, jobs[place])
            assert code in said
            assert help_ in said.replace("\n", " ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "AWS_SECRET_ACCESS_KEY"),
        ({"LUCIUS_WORKSPACE_URL": "s3://not-there/jobs"}, "its bucket does not exist: create it"),
        ({"LUCIUS_S3_ENDPOINT": "unconditional"}, "conditional writes"),
    ],
)
def test_a_server_that_cannot_use_its_workspaces_does_not_start_and_says_why(
    changes: dict[str, str], said: str, tmp_path: Path
) -> None:
    server = shared_s3()
    site = Site(server, server.bucket(), tmp_path)
    given = {**site.env, **changes}
    if given["LUCIUS_S3_ENDPOINT"] == "unconditional":
        given["LUCIUS_S3_ENDPOINT"] = server.unconditional
    started = Up(tmp_path, **given)
    try:
        assert started.ended() != 0
        assert said in started.log().replace("\n", " ")
    finally:
        started.kill()
