"""`isolation = "process"`: whatever `execute()` does ends one attempt with a code, and nothing else."""

import asyncio
import logging
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.settings.loading import ROWS
from lucius.platform import Service, ServiceError, ServiceRunner
from lucius.platform.isolation.forks import ForkServer, environment
from tests.platform import isolated
from tests.platform.bench import INPUT, Bench
from tests.platform.processes import gone

pytestmark = pytest.mark.slow

NOW = timedelta(0)
ROOT = Path(__file__).parents[2]
OUTPUT = "mem://lucius/tenant_a/job_1/ocr/output.txt"


async def outcome(bench: Bench, number: int = 1, **fields: Any) -> tuple[str, str | None]:
    await bench.send(number, **fields)
    result = await bench.result(number)
    return result["status"], result.get("error", {}).get("code")


def text(bench: Bench, uri: str = OUTPUT) -> str:
    return bench.workspace.objects[uri].decode()


@pytest.mark.parametrize(
    ("deed", "status", "code"),
    [
        ("exit", "FAILED_RETRY", "PROCESS_DIED"),
        ("crash", "FAILED_RETRY", "PROCESS_DIED"),
        ("killed", "FAILED_RETRY", "PROCESS_DIED"),
        ("sys.exit", "FAILED_RETRY", "EXIT_CALLED"),
        ("interrupt", "FAILED_RETRY", "EXIT_CALLED"),
        ("defect", "FAILED_RETRY", "UNEXPECTED_ERROR"),
        ("memory", "FAILED_FINAL", "MEMORY_LIMIT"),
    ],
)
async def test_what_a_child_does_costs_one_attempt_and_the_next_succeeds(
    bench: Bench, deed: str, status: str, code: str
) -> None:
    await bench.runner(isolated.Deeds())
    assert await outcome(bench, 1, payload={"deed": deed}) == (status, code)
    assert await outcome(bench, 2) == ("SUCCEEDED", None)
    assert text(bench).startswith("some text by ")


async def test_the_message_says_how_the_process_died(bench: Bench) -> None:
    await bench.runner(isolated.Deeds())
    await bench.send(1, payload={"deed": "exit"})
    await bench.send(2, payload={"deed": "killed"})
    await bench.replies("RESULT", 2)
    said = sorted(result["error"]["message"] for result in bench.of("RESULT"))
    assert said == [
        "its process died: it ended with exit code 3",
        "its process died: it was ended by SIGKILL",
    ]


async def test_a_time_limit_kills_the_process(bench: Bench) -> None:
    await bench.runner(isolated.Hasty())
    assert await outcome(bench, 1, payload={"deed": "for ever"}) == ("FAILED_RETRY", "TIME_LIMIT")


async def test_a_child_works_while_another_computes(bench: Bench) -> None:
    """And heartbeats go on, as the parent sends them."""
    await bench.runner(isolated.Deeds(), grace=NOW)
    await bench.send(1, payload={"deed": "for ever"}, lease_seconds=0.3)
    await bench.replies("ACK", 1)
    await bench.send(2, jobId="job_2", payload={})
    assert (await bench.result())["jobId"] == "job_2"
    await bench.replies("HEARTBEAT", 2)


async def test_a_process_is_used_again_and_replaced_after_its_tasks(bench: Bench) -> None:
    await bench.runner(isolated.Alone())
    pids = []
    for number in (1, 2, 3):
        job = f"job_{number}"
        await outcome(bench, number, jobId=job)
        pids.append(text(bench, f"mem://lucius/tenant_a/{job}/ocr/output.txt").split()[-1])
    assert pids[0] == pids[1] != pids[2]


async def test_a_service_that_listens_stops_when_the_job_is_cancelled(bench: Bench) -> None:
    runner = await bench.runner(isolated.Attentive())
    await bench.send(1)
    await staged(bench, "begun.txt")
    runner.request_cancel("job_1")
    result = await bench.result()
    assert (result["status"], result["error"]["code"]) == ("FAILED_FINAL", "CANCELLED")
    assert "being cancelled" in result["error"]["message"]


async def test_what_a_child_reports_goes_with_a_heartbeat(bench: Bench) -> None:
    runner = await bench.runner(isolated.Attentive())
    await bench.send(1, lease_seconds=9.0)
    beats = 1
    while "progress" not in (beat := (await bench.replies("HEARTBEAT", beats))[-1]):
        beats += 1  # the child had not begun
    assert beat["progress"] == "begun"
    runner.request_cancel("job_1")
    await bench.result()


async def test_a_process_that_ignores_a_cancellation_is_killed(bench: Bench) -> None:
    runner = await bench.runner(isolated.Deeds())
    await bench.send(1, payload={"deed": "for ever"})
    await bench.replies("ACK")
    runner.request_cancel("job_1")
    result = await bench.result()
    assert (result["status"], result["error"]["code"]) == ("FAILED_FINAL", "CANCELLED")
    assert "killed" in result["error"]["message"]


async def staged(bench: Bench, name: str) -> str:
    """What attempt 1 staged, once it has."""
    uri = f"mem://lucius/tenant_a/job_1/ocr/1/lease_1/{name}"
    return (await bench.workspace.written(uri)).decode()


async def test_a_runner_that_stops_gives_the_lease_back_and_leaves_no_process(bench: Bench) -> None:
    """Not even one that the service has started."""
    runner = ServiceRunner(isolated.Parent(), bench.bus, bench.workspace, grace=NOW)
    await runner.start()
    await bench.send(1)
    pids = [int(pid) for pid in (await staged(bench, "pids.txt")).split()]
    await runner.stop()
    await bench.replies("RELEASE")
    await gone(*pids)


async def test_a_server_that_is_killed_takes_its_processes_with_it() -> None:
    command = [sys.executable, "-m", "tests.platform.orphaning"]
    server = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        pids = [int(pid) for pid in (await server.stdout.readline()).split()]
        assert len(pids) == 2
    finally:
        server.kill()
        await server.communicate()
    await gone(*pids)


async def test_a_fork_server_that_dies_is_replaced(bench: Bench) -> None:
    forks = ForkServer()
    await bench.runner(isolated.Deeds(), forks=forks, grace=NOW)
    await bench.send(1, payload={"deed": "for ever"})
    await bench.replies("ACK")
    assert forks._process is not None
    forks._process.kill()
    result = await bench.result()
    assert (result["status"], result["error"]["code"]) == ("FAILED_RETRY", "PROCESS_DIED")
    child = await forks.fork(isolated.Deeds())
    assert child.alive
    child.kill()
    await forks.close()


async def test_an_asynchronous_execute_has_the_whole_task(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.runner(isolated.Asynchronous())
    with caplog.at_level(logging.INFO):
        assert await outcome(bench) == ("SUCCEEDED", None)
    assert text(bench) == "SOME TEXT"
    noted = text(bench, OUTPUT.replace("output", "notes/error"))
    assert noted == "there is no object mem://inputs/none"
    (line,) = [record for record in caplog.records if record.name == "tests.isolated"]
    assert line.getMessage().startswith("executing in ")
    assert vars(line)["jobId"] == "job_1"


async def test_a_defect_leaves_its_stack_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.runner(isolated.Deeds())
    await outcome(bench, payload={"deed": "defect"})
    assert "isolated.py" in caplog.text
    assert "KeyError: 'nothing'" in caplog.text


SECRET = "a secret of the server"
NOT_PASSED_ON = (
    "LUCIUS_CALLBACK_KEYS",
    "LUCIUS_NATS_URL",
    "AZURE_CLIENT_SECRET",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "HTTPS_PROXY",
    "DATABASE_URL",
)


async def test_a_child_sees_no_secret_and_only_what_the_job_may_touch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NOT_PASSED_ON:
        monkeypatch.setenv(name, f"{SECRET} of {name}")
    monkeypatch.setenv("MODEL_FOLDER", "/models")
    workspace = MemoryWorkspace(jobs="mem://lucius/")
    workspace.objects[INPUT] = b"some text"
    await bench.runner(isolated.Curious(), workspace=workspace)
    await outcome(bench, callback_token="token")
    seen = workspace.objects[OUTPUT].decode()
    assert "PATH=" in seen
    assert "MODEL_FOLDER=/models" in seen, "the service names it"
    assert SECRET not in seen
    assert workspace.objects[OUTPUT.replace("output", "refused")] == b"WorkspaceRefusedError"


def test_no_setting_and_no_credential_of_others_reaches_children() -> None:
    settings = {row.env: "x" for row in ROWS.values()} | dict.fromkeys(NOT_PASSED_ON, "x")
    assert environment({**settings, "PATH": "p", "LC_ALL": "C", "PYTHONPATH": "q"}) == {
        "PATH": "p",
        "LC_ALL": "C",
        "PYTHONPATH": "q",
    }


async def test_an_output_that_is_not_json_is_refused(bench: Bench) -> None:
    await bench.runner(isolated.NotJson())
    assert await outcome(bench) == ("FAILED_FINAL", "INVALID_OUTPUT")


def test_a_service_that_no_process_could_find_is_refused_at_the_start() -> None:
    class Local(Service):
        name = "local"
        step_types = ("LOCAL",)
        isolation = "process"

    with pytest.raises(ServiceError, match="'local' has isolation") as caught:
        ServiceRunner(Local(), None, MemoryWorkspace())  # type: ignore[arg-type]
    assert "top of a module" in str(caught.value)
