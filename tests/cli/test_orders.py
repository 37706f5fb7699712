"""Orders on the command line: for one job with a corrected payload, and for many after a count."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lucius.app.building import build
from lucius.app.settings import load_settings
from lucius.cli import bulk
from lucius.cli.main import main
from lucius.core.inputs import CancelRequested, ResultStatus
from tests.cli.conftest import Shell
from tests.cli.server import Server
from tests.cli.test_commands import SUBMIT, failed_job, finish


def submitted(shell: Shell, count: int, tenant: str = "default") -> list[str]:
    keys = [("--key", f"{tenant}-{number}", "--tenant", tenant) for number in range(count)]
    return [shell.json(*SUBMIT, *key)["jobId"] for key in keys]


def test_a_dry_run_counts_and_moves_nothing(server: Server, shell: Shell) -> None:
    submitted(shell, 2, "acme")
    submitted(shell, 1, "other")
    assert shell.run("jobs", "cancel", "--dry-run").stdout == "3 jobs match\n"
    assert shell.run("jobs", "cancel", "--dry-run", "--tenant", "other").stdout == "1 job matches\n"
    assert not any(job.terminal for job in server.world.jobs.values())


def test_an_order_for_many_is_given_and_counted(server: Server, shell: Shell) -> None:
    submitted(shell, 2, "acme")
    (other,) = submitted(shell, 1, "other")
    result = shell.run("jobs", "cancel", "--tenant", "acme", "--yes")
    assert (result.exit_code, result.stdout) == (0, "2 cancelled or being cancelled\n")
    assert not server.world.jobs[other].terminal
    again = shell.run("jobs", "cancel", "--tenant", "acme")
    assert (again.exit_code, again.stdout) == (0, "0 jobs match\n"), "nothing to ask about"


def test_lists_and_orders_are_narrowed_to_live_jobs_alike(server: Server, shell: Shell) -> None:
    failed = failed_job(server, shell)
    (alive,) = submitted(shell, 1, "acme")
    assert [job["jobId"] for job in shell.json("jobs", "--live")["jobs"]] == [alive]
    assert shell.json("dlq", "--live")["jobs"] == []
    assert shell.run("jobs", "pause", "--live", "--dry-run").stdout == "1 job matches\n"
    for order in ("redrive", "dismiss"):
        refused = shell.run("jobs", order, "--live", "--yes")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "/filter/live: no job is live of those that this order takes" in refused.stderr
    assert server.world.jobs[failed].in_dlq


def test_every_filter_of_the_lists_is_one_of_the_orders() -> None:
    def options(*words: str) -> set[str]:
        command: Any = main
        for word in words:
            command = command.commands[word]
        return {text for each in command.params for text in each.opts}

    filters = options("jobs", "list") - {"--limit", "--cursor"}
    assert {"--live", "--stuck", "--code", "--step", "--group", "--service"} <= filters
    assert options("dlq", "list") == options("jobs", "list")
    for order in ("cancel", "pause", "resume", "retry", "redrive", "dismiss"):
        assert filters <= options("jobs", order)


def test_a_script_must_say_yes(server: Server, shell: Shell) -> None:
    submitted(shell, 2)
    result = shell.run("jobs", "pause")
    assert result.exit_code == 2
    assert "2 jobs; add --yes to pause them" in result.stderr
    assert not any(job.paused_at for job in server.world.jobs.values())


@pytest.mark.parametrize(("said", "code", "paused"), [("y\n", 0, 2), ("n\n", 1, 0)])
def test_a_person_is_asked(
    server: Server,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    code: int,
    paused: int,
) -> None:
    submitted(shell, 2)
    monkeypatch.setattr(bulk, "is_interactive", lambda: True)
    env = {"LUCIUS_URL": shell.url}
    result = CliRunner().invoke(main, ["jobs", "pause"], input=said, env=env)
    assert (result.exit_code, "pause 2 jobs?" in result.stderr) == (code, True)
    assert sum(job.paused_at is not None for job in server.world.jobs.values()) == paused


def test_failed_jobs_are_redriven_and_dismissed_together(server: Server, shell: Shell) -> None:
    failed_job(server, shell)
    assert shell.run("jobs", "redrive", "--yes").stdout == "1 redriven\n"
    assert shell.run("dlq").stdout == "no jobs\n"
    server.do(finish(server, "job_1", ResultStatus.FAILED_FINAL))
    assert shell.run("jobs", "dismiss", "--yes").stdout == "1 dismissed\n"
    assert shell.run("dlq").stdout == "no jobs\n"


def test_many_are_redriven_with_a_corrected_payload(server: Server, shell: Shell) -> None:
    failed_job(server, shell)
    result = shell.run("jobs", "redrive", "--yes", "--payload", '{"language": "de"}')
    assert (result.exit_code, result.stdout) == (0, "1 redriven\n")
    assert server.world.jobs["job_1"].plan.payload == {"language": "de"}
    assert shell.run("jobs", "redrive", "--yes", "--payload", "[]").exit_code == 2


def test_a_job_is_redriven_with_a_corrected_payload(server: Server, shell: Shell) -> None:
    job_id = failed_job(server, shell)
    result = shell.run("job", "redrive", job_id, "--payload", '{"language": "de"}')
    assert (result.exit_code, result.stdout) == (0, f"{job_id} redriven as job_1\n")
    assert server.world.jobs["job_1"].plan.payload == {"language": "de"}
    bad = shell.run("job", "redrive", job_id, "--payload", "{")
    assert (bad.exit_code, "--payload" in bad.stderr) == (2, True)


def test_a_service_outside_needs_a_shared_bus(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["service", "run", "shout:Shout", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "the memory bus lives inside one process" in result.stderr
    assert "lucius up --service shout:Shout" in result.stderr


def test_pruning_deletes_jobs_and_their_workspaces(tmp_path: Path) -> None:
    settings = load_settings({"LUCIUS_DATA_DIR": str(tmp_path)})

    async def one_live_job() -> Path:
        runtime = await build(settings)
        async with runtime.running():
            job_id = (await runtime.engine.submit(ENVELOPE)).job_id
            job = await runtime.engine.job(job_id)
            assert job is not None
        return Path(job.plan.workspace_ref.removeprefix("file://"))

    folder = asyncio.run(one_live_job())
    folder.mkdir(parents=True)
    (folder / "output.txt").write_text("x")
    runner = CliRunner()
    words = ["ledger", "prune", "--yes", "--data", str(tmp_path), "--older-than"]
    assert runner.invoke(main, [*words, "0s"]).stdout == "0 jobs deleted\n", "it is live"
    assert folder.exists()
    asyncio.run(cancelled(tmp_path))
    assert runner.invoke(main, [*words, "1d"]).stdout == "0 jobs deleted\n", "it is young"
    assert runner.invoke(main, [*words, "0s"]).stdout == "1 job deleted\n"
    assert not folder.exists()


def test_a_backup_says_what_is_in_it_and_what_is_not(tmp_path: Path) -> None:
    async def begun() -> None:
        runtime = await build(load_settings({"LUCIUS_DATA_DIR": str(tmp_path)}))
        async with runtime.running():
            pass

    asyncio.run(begun())
    env = {"LUCIUS_WORKSPACE_URL": "file:///elsewhere"}
    words = ["ledger", "backup", str(tmp_path / "copy.db"), "--data", str(tmp_path)]
    plain = CliRunner().invoke(main, words, env=env).stdout
    assert f"{tmp_path / 'copy.db'}: jobs, events, idempotency claims" in plain
    for missing in ("file:///elsewhere", "keys.json", "webhook.key", "installation"):
        assert missing in plain.partition("does not contain")[2]
    machine = json.loads(CliRunner().invoke(main, [*words, "--json"], env=env).stdout)
    assert "file:///elsewhere" in machine["does_not_contain"].values()


ENVELOPE = {
    "tenant_id": "t",
    "request_type": "OCR",
    "input_ref": "s3://bucket/in.pdf",
    "output_ref": "s3://bucket/out.json",
    "payload": {},
    "schema_version": "v1",
}


async def cancelled(data: Path) -> None:
    runtime = await build(load_settings({"LUCIUS_DATA_DIR": str(data)}))
    async with runtime.running():
        job_id = (await runtime.engine.submit(ENVELOPE)).job_id
        await runtime.engine.apply(job_id, CancelRequested(immediate=True))
