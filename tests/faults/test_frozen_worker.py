"""FM_001 with real processes: a worker is frozen past its lease, another does its step, and it wakes up."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pytest

from lucius.app.stacks import die_with_parent
from lucius.client import BlockingClient
from tests.cli.up import LUCIUS, Up, clean_environment, up

pytestmark = pytest.mark.xdist_group("stacks")
PATIENCE = 120.0
FROZEN = "by attempt 1"
SERVICE = """
import asyncio
import os
from pathlib import Path

from lucius.platform import Commits, Service, Task
from lucius.platform.commit import record_uri
from lucius.platform.execution import Attempt
from lucius.platform.lease import Lease

FOLDER, GUARDS = Path(os.environ["FOLDER"]), os.environ["GUARDS"]


class Copyist(Service):
    name = "copyist"
    step_types = ("COPY",)

    async def execute(self, task: Task) -> None:
        (FOLDER / f"begun-{task.attempt_no}").write_text(str(os.getpid()))
        while task.attempt_no == 1 and not (FOLDER / "go").exists():
            await asyncio.sleep(0.02)
        await task.stage("output.txt", f"by attempt {task.attempt_no}")


async def careless(self, directive, worker_id, output, staged):
    record = self._proposal(directive, worker_id, output, tuple(staged.values()))
    await self._workspace.write(record_uri(directive), record.encoded())
    return record, 0


async def write_over(self, directive, record, filled=0):
    for promotion, target in record.places():
        await self._workspace.write(target, promotion.content)


# A worker that nothing tells that its lease is over.
Lease.check = lambda self: None
Attempt.end = lambda self, running: None
if GUARDS == "none":
    Commits.commit, Commits.promote = careless, write_over
"""
PROTOCOL = """
step_types: {COPY: {service: copyist}}
protocols: [{request_type: COPY, protocol_id: copy_v1, steps: [COPY]}]
"""
QUICK = {
    "LUCIUS_LEASE_SECONDS": "3",
    "LUCIUS_EXECUTION_BACKOFF_SECONDS": "0.2",
    "LUCIUS_MAX_ATTEMPTS": "20",  # on a busy machine a lease of three seconds may end once more
    "LUCIUS_PROTOCOLS": "copy.yaml",
    "LUCIUS_REFERENCE_SCHEMES": "file",
}


@contextmanager
def worker(folder: Path, running: Up, guards: str) -> Iterator["subprocess.Popen[str]"]:
    roots = {"LUCIUS_OUTPUT_ROOTS": str(folder), "FOLDER": str(folder), "GUARDS": guards}
    words = ["service", "run", "copyist:Copyist", "--url", running.url, "--slots", "1", "--json"]
    with subprocess.Popen(
        [LUCIUS, *words],
        cwd=folder,
        env=clean_environment(**roots),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as process:
        try:
            assert json.loads(cast(IO[str], process.stdout).readline())["ready"]
            yield process
        finally:
            process.kill()


def appears(path: Path) -> str:
    """Its text, once it is there."""
    deadline = time.monotonic() + PATIENCE
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)
    return path.read_text()


def effects(folder: Path, guards: str) -> tuple[str, str]:
    """What stands at `output_ref` when the job has ended, and after the frozen worker has ended too."""
    (folder / "copyist.py").write_text(SERVICE)
    (folder / "copy.yaml").write_text(PROTOCOL)
    output = folder / "out.txt"
    command = {
        "tenant_id": "acme",
        "request_type": "COPY",
        "input_ref": (folder / "in.txt").as_uri(),
        "output_ref": output.as_uri(),
        "payload": {},
        "schema_version": "v1",
    }
    roots = {"LUCIUS_INPUT_ROOTS": str(folder), "LUCIUS_OUTPUT_ROOTS": str(folder)}
    with (
        up(folder, "--no-services", **QUICK, **roots) as running,
        worker(folder, running, guards) as first,
        worker(folder, running, guards) as second,
        BlockingClient(running.url) as client,
    ):
        job_id = client.submit(command).jobId
        pid = int(appears(folder / "begun-1"))
        zombie = first if pid == first.pid else second
        os.kill(pid, signal.SIGSTOP)
        (folder / "go").touch()
        job = client.wait(job_id, timeout_seconds=PATIENCE)
        assert job.state == "SUCCEEDED"
        before = output.read_text()
        os.kill(pid, signal.SIGCONT)
        zombie.terminate()
        zombie.wait(PATIENCE)
        return before, output.read_text()


def test_fm_001_prevent_a_worker_that_wakes_up_has_no_second_effect(tmp_path: Path) -> None:
    """Not even where nothing but the commit record is left to stop it."""
    before, after = effects(tmp_path, "record")
    assert before == after != FROZEN


def test_fm_001_reproduce_without_the_commit_record_the_effect_doubles(tmp_path: Path) -> None:
    before, after = effects(tmp_path, "none")
    assert before != after == FROZEN
