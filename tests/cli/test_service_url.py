"""`lucius service run --url`: a service in a process of its own works for a server over HTTP alone."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pytest
from click.testing import CliRunner

from lucius import __version__
from lucius.app.stacks import die_with_parent
from lucius.cli.main import main
from lucius.client import BlockingClient
from tests.cli.up import LUCIUS, Up, clean_environment, up

pytestmark = pytest.mark.xdist_group("stacks")
SERVICE = """
from lucius.platform import Output, Service, Task

class Shout(Service):
    name = "shout"
    step_types = ("SHOUT",)

    async def execute(self, task: Task) -> Output:
        await task.stage("output.txt", (await task.input()).upper())
        return Output()
"""
PROTOCOL = """
step_types:
  SHOUT: {service: shout}
protocols:
  - {request_type: SHOUT, protocol_id: shout_v1, steps: [SHOUT]}
"""
ENDS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shout.py").write_text(SERVICE)
    (tmp_path / "shout.yaml").write_text(PROTOCOL)
    (tmp_path / "in.txt").write_text("hello")
    return tmp_path


@contextmanager
def server(folder: Path) -> Iterator[Up]:
    roots = {"LUCIUS_INPUT_ROOTS": str(folder), "LUCIUS_OUTPUT_ROOTS": str(folder)}
    env = {"LUCIUS_AUTH": "keys", "LUCIUS_PROTOCOLS": "shout.yaml", **roots}
    with up(folder, "--no-services", **env, LUCIUS_REFERENCE_SCHEMES="file") as running:
        yield running


def key(folder: Path, *roles: str) -> str:
    words = ["keys", "create", "-".join(roles), "--all-tenants", "--json"]
    words += [word for role in roles for word in ("--role", role)]
    done = CliRunner().invoke(main, [*words, "--data", str(folder / ".lucius")])
    assert done.exit_code == 0, done.output
    made: str = json.loads(done.stdout)["key"]
    return made


def command(folder: Path) -> dict[str, Any]:
    return {
        "tenant_id": "acme",
        "request_type": "SHOUT",
        "input_ref": (folder / "in.txt").as_uri(),
        "output_ref": (folder / "out.txt").as_uri(),
        "payload": {},
        "schema_version": "v1",
    }


@contextmanager
def service(folder: Path, running: Up, **env: str) -> Iterator["subprocess.Popen[str]"]:
    roots = {"LUCIUS_INPUT_ROOTS": str(folder), "LUCIUS_OUTPUT_ROOTS": str(folder)}
    with subprocess.Popen(
        [LUCIUS, "service", "run", "shout:Shout", "--url", running.url, "--json"],
        cwd=folder,
        env=clean_environment(**{**roots, **env}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_service_with_a_url_and_a_key_executes_steps_and_drains(folder: Path) -> None:
    with (
        server(folder) as running,
        service(folder, running, LUCIUS_API_KEY=key(folder, "service")) as worker,
    ):
        assert json.loads(cast(IO[str], worker.stdout).readline()) == {
            "service": "shout",
            "ready": True,
        }
        with BlockingClient(running.url, api_key=key(folder, "submit", "read")) as client:
            job = client.run(command(folder), timeout_seconds=ENDS)
            assert_known_once(client)
        assert job.state == "SUCCEEDED"
        assert (folder / "out.txt").read_text() == "HELLO"
        assert_loaded(folder, running)
        worker.send_signal(signal.SIGTERM)
        _, complaints = worker.communicate(timeout=ENDS)
        assert worker.returncode == 0, complaints
        assert "shout takes SHOUT, 8 steps at once" in complaints


def assert_known_once(client: BlockingClient) -> None:
    """Its pulls and its ACKs speak of one worker."""
    (shout,) = client.services().services
    (known,) = shout.workers
    assert known.worker_id.startswith("shout-")
    assert (known.slots, known.version) == (8, __version__)


def assert_loaded(folder: Path, running: Up) -> None:
    """A load of twenty jobs, of which some are meant to fail."""
    words = ["load", "--type", "SHOUT", "--input", str(folder / "in.txt"), "--jobs", "20"]
    words += [
        "--output",
        str(folder / "load"),
        "--concurrency",
        "4",
        "--tenants",
        "acme=2,globex=1",
    ]
    words += ["--failures", "missing=0.3,duplicate=0.3,cancel=0.2", "--url", running.url, "--json"]
    env = {"LUCIUS_API_KEY": key(folder, "submit", "read", "operate")}
    result = CliRunner().invoke(main, words, env=env)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["started"] == document["ended"] == 20
    assert document["succeeded"] + document["failed_as_meant"] == 20
    assert sum(document["histogram"].values()) == 20


def test_a_service_without_a_key_ends_and_says_what_it_needs(folder: Path) -> None:
    with server(folder) as running, service(folder, running) as worker:
        _, complaints = worker.communicate(timeout=ENDS)
    assert worker.returncode == 1
    said = json.loads(complaints.splitlines()[-1])
    assert said["code"] == "GATEWAY_REFUSED"
    assert "set LUCIUS_API_KEY" in said["message"]


def test_a_service_that_cannot_reach_the_workspace_of_a_job_says_which_setting_helps(
    folder: Path, tmp_path: Path
) -> None:
    with (
        server(folder) as running,
        service(
            folder,
            running,
            LUCIUS_DATA_DIR=str(tmp_path / "other"),
            LUCIUS_OUTPUT_ROOTS=str(tmp_path / "elsewhere"),
            LUCIUS_API_KEY=key(folder, "service"),
        ) as worker,
        BlockingClient(running.url, api_key=key(folder, "submit", "read")) as client,
    ):
        job_id = client.submit(command(folder)).jobId
        _, complaints = worker.communicate(timeout=ENDS)
        events = [event.event_type for event in client.events(job_id)]
    assert worker.returncode == 1
    assert "LUCIUS_WORKSPACE_URL" in complaints.splitlines()[-1]
    assert "lease_returned" in events, "another service may do it"


def test_a_mode_needs_lanes_that_are_filtered_by_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCIUS_BUS_BACKEND", "nats")
    words = ["service", "run", "lucius.services.ocr:Ocr", "--mode", "BURST"]
    result = CliRunner().invoke(main, [*words, "--data", str(folder)])
    assert result.exit_code == 1
    assert "LUCIUS_LANE_TOPOLOGY is shared: set it to filtered" in result.stderr


def test_a_mode_cannot_be_chosen_over_http() -> None:
    words = ["service", "run", "x:Y", "--mode", "BURST", "--url", "http://127.0.0.1:9"]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "--mode is for a bus" in result.stderr) == (2, True)


def test_faults_that_are_none_are_refused_by_name() -> None:
    result = CliRunner().invoke(main, ["service", "run", "x:Y", "--chaos", "drip=0.1"])
    assert (result.exit_code, "'drip' is no fault" in result.stderr) == (2, True)
