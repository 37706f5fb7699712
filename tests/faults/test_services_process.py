"""The services of `lucius up` have a process of their own: it may die, and the server goes on."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from lucius.client import BlockingClient
from tests.cli.up import Up, up
from tests.soon import soon

pytestmark = pytest.mark.xdist_group("stacks")
SERVICE = """
import os
import sys
import time
from pathlib import Path

from lucius.platform import Output, Service, Task

FOLDER = Path(os.environ["FOLDER"])


class Patient(Service):
    name = "patient"
    step_types = ("WAIT",)

    def execute(self, task: Task) -> Output:
        with (FOLDER / "begun").open("a") as begun:
            begun.write(f"{os.getpid()}\\n")
        while not (FOLDER / "go").exists():
            time.sleep(0.02)
        task.stage("output.txt", b"done")
        return Output()


if (FOLDER / "broken").exists() and "services_child" in " ".join(sys.orig_argv):
    raise RuntimeError("it cannot be made here")
"""
PROTOCOL = """
step_types: {WAIT: {service: patient}}
protocols: [{request_type: WAIT, protocol_id: wait_v1, steps: [WAIT]}]
"""
COMMAND = {
    "tenant_id": "acme",
    "request_type": "WAIT",
    "input_ref": "s3://bucket/in",
    "payload": {},
    "schema_version": "v1",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "patient.py").write_text(SERVICE)
    (tmp_path / "wait.yaml").write_text(PROTOCOL)
    return tmp_path


WORDS = ("--no-services", "--service", "patient:Patient")


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[tuple[Up, BlockingClient]]:
    env = {
        "FOLDER": str(folder),
        "LUCIUS_OUTPUT_ROOTS": str(folder),
        "LUCIUS_PROTOCOLS": "wait.yaml",
    }
    with up(folder, *WORDS, *words, **env) as server, BlockingClient(server.url) as client:
        yield server, client


def submitted(client: BlockingClient, folder: Path) -> str:
    out = (folder / "out.txt").as_uri()
    return str(client.submit({**COMMAND, "output_ref": out}).jobId)


def begun(folder: Path, count: int = 1) -> int:
    """The process that is at the latest attempt, once there were so many."""

    def found() -> list[str]:
        return (folder / "begun").read_text().split() if (folder / "begun").exists() else []

    assert soon(lambda: len(found()) >= count)
    return int(found()[-1])


def gone(pid: int) -> bool:
    def ended() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"  # nobody is there to wait for it

    return soon(ended)


@pytest.mark.parametrize("stack", ["embedded", "nats"])
def test_a_process_that_is_killed_at_work_is_replaced_and_the_step_done(
    folder: Path, stack: str
) -> None:
    with serving(folder, "--stack", stack) as (server, client):
        job_id = submitted(client, folder)
        first = begun(folder)
        assert first != server.pid
        os.kill(first, signal.SIGKILL)
        assert begun(folder, 2) not in (first, server.pid)
        (folder / "go").touch()
        assert client.wait(job_id).state == "SUCCEEDED"
        reasons = [each.reason for each in client.executions(job_id).executions]
        attempts = [each.attempt_no for each in client.executions(job_id).executions]
        assert "it was ended by SIGKILL" in server.log()
    assert (reasons, attempts) == (["process_died", None], [1, 1]), "the first death is free"


def test_what_runs_at_the_end_is_waited_for(folder: Path) -> None:
    with serving(folder) as (server, client):
        job_id = submitted(client, folder)
        pid = begun(folder)
        server.terminate()
        assert soon(lambda: "waiting for 1 step" in server.log())
        (folder / "go").touch()
        assert server.ended() == 0
        assert gone(pid)
    with serving(folder) as (_, client):
        job = client.job(job_id)
        assert job.state == "SUCCEEDED"
        assert len(client.executions(job_id).executions) == 1


def test_a_step_that_is_cancelled_hears_of_it(folder: Path) -> None:
    with serving(folder) as (_, client):
        job_id = submitted(client, folder)
        begun(folder)
        client.cancel(job_id, immediate=True)
        (folder / "go").touch()
        assert client.wait(job_id).state == "CANCELLED"
        assert not (folder / "out.txt").exists()


def test_services_that_cannot_be_made_there_stop_the_start_with_their_reason(
    folder: Path,
) -> None:
    (folder / "broken").touch()
    server = Up(folder, *WORDS, FOLDER=str(folder), LUCIUS_PROTOCOLS="wait.yaml")
    try:
        assert server.ended() == 1
        assert "it cannot be made here" in server.log()
        assert "Traceback" not in server.log()
    finally:
        server.kill()


def test_a_process_that_dies_again_and_again_does_not_hold_up_the_end(folder: Path) -> None:
    """Not even while another one is being started."""
    with serving(folder) as (server, client):
        submitted(client, folder)
        for count in (1, 2):
            os.kill(begun(folder, count), signal.SIGKILL)
        assert soon(lambda: server.log().count("is gone: it was ended by SIGKILL") == 2)
        server.terminate()
        assert server.ended() == 0
        assert "Traceback" not in server.log()
        assert "never retrieved" not in server.log()


def test_a_service_that_holds_up_its_loop_holds_up_nobody_else(folder: Path) -> None:
    """The server answers, and says afterwards who it was."""
    (folder / "patient.py").write_text(SERVICE.replace("def execute", "async def execute", 1))
    with serving(folder) as (server, client):
        job_id = submitted(client, folder)
        begun(folder)
        assert soon(lambda: "patient holds up the event loop" in server.log())
        assert client.job(job_id).state in ("DISPATCHING", "IN_PROGRESS")
        (folder / "go").touch()
        client.wait(job_id)

        def named() -> bool:
            with urlopen(f"{server.url}/readyz", timeout=10) as answer:
                return b"patient held up the event loop" in answer.read()

        assert soon(named)


def children(server: Up) -> list[str]:
    return Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()


def readiness(server: Up) -> str:
    with urlopen(f"{server.url}/readyz", timeout=10) as answer:
        return str(answer.read().decode())


def test_one_that_cannot_be_started_again_is_tried_until_it_can_and_there_is_one(
    folder: Path,
) -> None:
    with serving(folder) as (server, client):
        (pid,) = children(server)
        (folder / "broken").touch()
        os.kill(int(pid), signal.SIGKILL)
        assert soon(lambda: server.log().count("it cannot be made here") == 2)
        assert "is being started" in readiness(server)
        causes = [each.cause for each in client.why().causes]
        assert "SERVICES_DOWN" in causes
        (folder / "broken").unlink()
        (folder / "go").touch()
        job_id = submitted(client, folder)
        assert client.wait(job_id).state == "SUCCEEDED"
        assert len(children(server)) == 1
        assert "is being started" not in readiness(server)


FORKS = """
    def execute(self, task: Task) -> Output:
        import multiprocessing
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(10,)).start()
"""


def test_a_process_that_a_service_has_forked_does_not_hide_its_death(folder: Path) -> None:
    """It holds the socket of the dead."""
    forking = SERVICE.replace("    def execute(self, task: Task) -> Output:\n", FORKS[1:], 1)
    (folder / "patient.py").write_text(forking)
    with serving(folder) as (server, client):
        job_id = submitted(client, folder)
        os.kill(begun(folder), signal.SIGKILL)
        begun(folder, 2)
        (folder / "go").touch()
        assert client.wait(job_id).state == "SUCCEEDED"
        server.terminate()
        assert server.ended() == 0


def test_it_ends_with_the_server_even_if_a_service_holds_up_its_loop(folder: Path) -> None:
    (folder / "patient.py").write_text(SERVICE.replace("def execute", "async def execute", 1))
    with serving(folder) as (server, client):
        submitted(client, folder)
        pid = begun(folder)
        server.kill()
        assert gone(pid)
