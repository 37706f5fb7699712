"""`lucius certify`, as people call it: what it refuses, and one certificate of a worker that speaks HTTP."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lucius.app.lifecycle import free_port
from lucius.app.stacks import die_with_parent
from lucius.cli.main import main
from lucius.dev.certificate.checks import CHECKS
from tests.cli.up import clean_environment

WORKER = """
import json, os, sys, urllib.request

def post(path, body, token=None):
    headers = {"content-type": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(os.environ["LUCIUS_URL"] + path, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))

while True:
    answer = post("/v1/services/shout/directives:pull", {"max": 1, "wait_seconds": 20})
    for directive in answer["directives"]:
        names = ("jobId", "stepId", "attempt_no", "lease_id", "correlation_id", "traceparent")
        reply = {name: directive[name] for name in names}
        post("/v1/callbacks/ack", reply, directive["callback_token"])
        result = {**reply, "status": "SUCCEEDED"}
        post("/v1/callbacks/result", result, sys.argv[1] or directive["callback_token"])
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["certify", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one of MODULE:NAME, --command and --listen"),
        (("x:Y", "--command", "sh"), "give one of"),
        (("--command", "sh"), "need --service and --step-type"),
        (("x:Y", "--check", "every"), "'every' is no check; `lucius certify --list`"),
        (("lucius.services.ocr:Ocr", "--step-type", "SIS"), "SIS is not executed by"),
        (
            ("lucius.services.ocr:Ocr", "--junit", "no-such-folder/x.xml"),
            "no folder no-such-folder",
        ),
    ],
)
def test_wrong_usage_is_explained(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert (result.exit_code, said in result.stderr) == (2, True), result.output


def test_a_module_that_ends_its_process_when_it_is_imported_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending_at_import.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = run("ending_at_import:Service")
    assert result.exit_code == 1
    assert "ending_at_import:Service cannot be loaded: SystemExit: 3" in result.stderr


def test_what_is_no_service_and_what_are_no_samples_is_said(tmp_path: Path) -> None:
    assert "nowhere:Service cannot be loaded" in run("nowhere:Service").stderr
    missing = str(tmp_path / "none.yaml")
    result = run("lucius.services.ocr:Ocr", "--samples", missing)
    assert (result.exit_code, f"{missing} cannot be read" in result.stderr) == (1, True)


def test_the_list_has_every_check() -> None:
    listed = json.loads(run("--list", "--json").stdout)
    assert [each["name"] for each in listed] == [check.name for check in CHECKS]


def certified(folder: Path, token: str, *words: str) -> Result:
    worker = folder / "worker.py"
    worker.write_text(WORKER)
    command = f"{sys.executable} {worker} '{token}'"
    common = ("--service", "shout", "--step-type", "SHOUT")
    return run("--command", command, *common, "--check", "replies-carry-their-token", *words)


@pytest.mark.xdist_group("stacks")
def test_a_worker_that_speaks_http_is_certified_by_its_command(tmp_path: Path) -> None:
    result = certified(tmp_path, "", "--junit", str(tmp_path / "report.xml"))
    assert result.exit_code == 0, result.output
    assert "ok    replies-carry-their-token" in result.stdout
    assert 'failures="0"' in (tmp_path / "report.xml").read_text()


@pytest.mark.xdist_group("stacks")
def test_a_broken_promise_is_explained_and_exits_with_1(tmp_path: Path) -> None:
    result = certified(tmp_path, "k1.wrong", "--json")
    assert result.exit_code == 1, result.output
    (check,) = json.loads(result.stdout)["checks"]
    assert "the RESULT carried no token" in check["seen"]


@pytest.mark.xdist_group("stacks")
def test_a_service_that_never_asks_is_shown_with_its_log() -> None:
    words = ("--command", "sh -c 'echo this is why; exit 3'", "--service", "s", "--step-type", "S")
    result = run(*words)
    assert result.exit_code == 1
    assert "it has ended\nthis is why" in result.stderr


@pytest.mark.xdist_group("stacks")
def test_a_service_that_somebody_else_starts_is_certified_where_it_can_be(tmp_path: Path) -> None:
    """It is told where to pull from; what needs a process to be stopped is skipped."""
    port, worker = free_port(), tmp_path / "worker.py"
    worker.write_text(WORKER)
    words = ["--listen", str(port), "--service", "shout", "--step-type", "SHOUT", "--json"]
    words += ["--check", "replies-carry-their-token", "--check", "drain-ends-in-order"]
    env = clean_environment(LUCIUS_URL=f"http://127.0.0.1:{port}")
    tries = f"until {sys.executable} {worker} ''; do sleep 0.2; done"
    with subprocess.Popen(
        ["sh", "-c", tries],
        env=env,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die_with_parent,
    ) as started:
        try:
            result = run(*words, "--folder", str(tmp_path / "kept"))
        finally:
            os.killpg(started.pid, signal.SIGKILL)
    assert result.exit_code == 0, result.output
    assert f"LUCIUS_WORKSPACE_URL=file://{tmp_path}/kept/workspace" in result.stderr
    outcomes = {each["name"]: each["outcome"] for each in json.loads(result.stdout)["checks"]}
    assert outcomes == {"replies-carry-their-token": "kept", "drain-ends-in-order": "skipped"}


CRASHING = """
import os
from lucius.platform import Output, Service, Task

class Crashing(Service):
    name, step_types, executed = "crashing", ("CRASH",), 0

    async def execute(self, task: Task) -> Output:
        Crashing.executed += 1
        if Crashing.executed > 3:
            os._exit(7)
        await task.stage("output.txt", b"x")
        return Output()
"""


@pytest.mark.xdist_group("stacks")
def test_one_crash_is_one_broken_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashing_service.py").write_text(CRASHING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run("crashing_service:Crashing", "--json")
    checks = json.loads(result.stdout)["checks"]
    ended = [each for each in checks if "the process has ended" in each["seen"]]
    broken = [each for each in ended if each["outcome"] == "broken"]
    assert result.exit_code == 1
    assert len(ended) > 5, "all that were under way, and all after it"
    assert 1 <= len(broken) <= 2, "one for each process that was looked at"
    assert all("see " in each["seen"] for each in ended if each not in broken)
