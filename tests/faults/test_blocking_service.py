"""An `async def execute()` that computes without awaiting keeps its lease: a thread sends its heartbeats."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pytest

from lucius.app.stacks import die_with_parent
from lucius.client import BlockingClient
from lucius.client.models import ExecutionView
from tests.cli.up import LUCIUS, Up, clean_environment, up

pytestmark = pytest.mark.xdist_group("stacks")
PATIENCE = 120.0
SERVICE = """
import os
import time
from pathlib import Path

from lucius.platform import Output, Service, Task
from lucius.platform.runner import StandbyHeartbeats

FOLDER = Path(os.environ["FOLDER"])


class Stubborn(Service):
    name = "stubborn"
    step_types = ("BLOCK",)
    commit = False

    async def execute(self, task: Task) -> Output:
        while not (FOLDER / "go").exists():
            time.sleep(0.02)
        return Output()


if os.environ["STANDBY"] == "off":
    StandbyHeartbeats.send_due = lambda self: None
"""
PROTOCOL = """
step_types: {BLOCK: {service: stubborn}}
protocols: [{request_type: BLOCK, protocol_id: block_v1, steps: [BLOCK]}]
"""
QUICK = {
    "LUCIUS_LEASE_SECONDS": "6",
    "LUCIUS_EXECUTION_BACKOFF_SECONDS": "0.2",
    "LUCIUS_PROTOCOLS": "block.yaml",
}


@contextmanager
def with_gateway(folder: Path, standby: str) -> Iterator[Up]:
    """A server, and the service in a process that pulls from it."""
    with up(folder, "--no-services", **QUICK) as running, stubborn(folder, running, standby):
        yield running


@contextmanager
def with_process(folder: Path, standby: str) -> Iterator[Up]:
    """A server whose process of services has it."""
    words = ("--no-services", "--service", "stubborn:Stubborn")
    with up(folder, *words, FOLDER=str(folder), STANDBY=standby, **QUICK) as running:
        yield running


SERVED = {"over the gateway": with_gateway, "by lucius up": with_process}


@contextmanager
def stubborn(folder: Path, running: Up, standby: str) -> Iterator[None]:
    where = ("--slots", "2", "--json", "--url", running.url)
    with subprocess.Popen(
        [LUCIUS, "service", "run", "stubborn:Stubborn", *where],
        cwd=folder,
        env=clean_environment(FOLDER=str(folder), STANDBY=standby),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as process:
        try:
            assert json.loads(cast(IO[str], process.stdout).readline())["ready"]
            yield
        finally:
            process.kill()


def comes(look: Callable[[], Any]) -> Any:
    """What it finds, once it finds something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
    return found


def lease_runs_out(folder: Path, standby: str, served: str) -> bool:
    """Whether a lease ends while the service holds up its loop for longer than that."""
    (folder / "stubborn.py").write_text(SERVICE)
    (folder / "block.yaml").write_text(PROTOCOL)
    command = {
        "tenant_id": "acme",
        "request_type": "BLOCK",
        "input_ref": "s3://bucket/in",
        "output_ref": "s3://bucket/out",
        "payload": {},
        "schema_version": "v1",
    }
    with (
        SERVED[served](folder, standby) as running,
        BlockingClient(running.url) as client,
    ):
        job_id = client.submit(command).jobId

        leases: set[str] = set()

        def outlived() -> list[ExecutionView]:
            """The attempts, once the lease was extended often enough, or has ended."""
            found = client.executions(job_id).executions
            leases.update(str(each.lease_expires_at) for each in found if each.started_at)
            return found if len(leases) > 4 or _aborted(found) else []

        found = comes(outlived)
        (folder / "go").touch()
        assert client.wait(job_id, timeout_seconds=PATIENCE).state == "SUCCEEDED"
        return _aborted(found)


def _aborted(executions: list[ExecutionView]) -> bool:
    return any(each.state == "ABORTED" for each in executions)


@pytest.mark.parametrize("served", SERVED)
def test_a_service_that_holds_up_its_loop_keeps_its_lease(tmp_path: Path, served: str) -> None:
    assert not lease_runs_out(tmp_path, "on", served)


def test_without_the_heartbeats_beside_the_loop_the_lease_runs_out(tmp_path: Path) -> None:
    assert lease_runs_out(tmp_path, "off", "by lucius up")
