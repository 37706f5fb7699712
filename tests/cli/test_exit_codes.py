"""Every command: 0 done, 1 failed, 2 wrong usage. Whatever is typed, nobody sees a traceback."""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lucius.adapters.configs.files import PACKAGED
from lucius.app.adapters import open_ledger
from lucius.app.settings import load_settings
from lucius.cli.main import main
from lucius.core.inputs import CancelRequested, PauseRequested, ResultStatus
from tests.api.world import ENVELOPE
from tests.cli.conftest import Shell
from tests.cli.server import Server
from tests.cli.test_commands import SUBMIT, finish
from tests.cli.test_usage import ALL

NOWHERE = ("--url", "http://127.0.0.1:9")
ELSEWHERE = {
    *(("up",), ("orchestrator",), ("reconciler",), ("invoker",), ("demo",)),
    *(("service", "run"), ("service", "new"), ("bus", "provision"), ("load",)),
    *(("temporal", "provision"), ("job", "files")),
}
"""Run in processes of their own by other tests, where they end well."""
DONE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("submit",): SUBMIT[1:],
    ("job", "show"): ("live",),
    ("job", "watch"): ("succeeded",),
    ("job", "events"): ("live",),
    ("job", "cancel"): ("live",),
    ("job", "pause"): ("live",),
    ("job", "resume"): ("live",),
    ("job", "redrive"): ("failed",),
    ("jobs", "list"): (),
    ("jobs", "cancel"): ("--yes",),
    ("jobs", "pause"): ("--yes",),
    ("jobs", "resume"): ("--dry-run",),
    ("jobs", "redrive"): ("--yes",),
    ("jobs", "dismiss"): ("--yes",),
    ("dlq", "list"): (),
    ("dlq", "dismiss"): ("failed",),
    ("dlq", "redrive"): ("failed",),
    ("outbox", "retry"): (),
    ("protocols", "list"): (),
    ("protocols", "check"): (str(PACKAGED),),
    ("why",): ("live",),
    ("services",): (),
    ("service", "schema"): ("lucius.services.ocr:Ocr", "--data", "{data}"),
    ("service", "pause"): ("ocr-service",),
    ("service", "resume"): ("ocr-service",),
    ("worker", "drop"): ("(unnamed)",),
    ("webhooks", "list"): (),
    ("webhooks", "resend"): ("told",),
    ("failures",): (),
    ("redrive",): ("--code", "MODEL_GONE"),
    ("redrives",): (),
    ("submit-many",): ("{data}/commands.jsonl",),
    ("jobs", "retry"): ("--yes",),
    ("job", "retry"): ("live",),
    ("certify",): ("--list",),
    ("settings",): (),
    ("verify",): ("--data", "{data}"),
    ("ledger", "prune"): ("--older-than", "1d", "--data", "{data}"),
    ("ledger", "backup"): ("{data}/copy.db", "--data", "{data}"),
    ("ledger", "restore"): ("{data}/saved.db", "--force", "--data", "{data}"),
    ("ledger", "info"): ("--data", "{data}"),
    ("keys", "create"): ("me", "--role", "read", "--all-tenants", "--data", "{data}"),
    ("keys", "list"): ("--data", "{data}"),
    ("keys", "revoke"): ("{key}", "--data", "{data}"),
    ("keys", "webhook"): ("acme", "--data", "{data}"),
}
FAILED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("job", "watch"): ("failed",),
    ("job", "cancel"): ("failed",),
    ("job", "pause"): ("succeeded",),
    ("job", "resume"): ("failed",),
    ("job", "redrive"): ("live",),
    ("dlq", "dismiss"): ("live",),
    ("dlq", "redrive"): ("live",),
    ("submit",): ("--type", "NOPE", "--input", "s3://b/in.pdf"),
    ("jobs", "list"): ("--state", "DONE"),
    ("jobs", "cancel"): ("--state", "SUCCEEDED", "--yes"),
    ("verify",): ("--data", "{data}/corrupt"),
    ("ledger", "prune"): ("--older-than", "1d", "--data", "{data}/corrupt"),
    ("ledger", "backup"): ("{data}/copy.db", "--data", "{data}/corrupt"),
    ("ledger", "restore"): ("{data}/keys.json", "--force", "--data", "{data}"),
    ("ledger", "info"): ("--data", "{data}/corrupt"),
    ("job", "files"): ("succeeded", "--data", "{data}"),
    ("keys", "revoke"): ("nobody", "--data", "{data}"),
    ("service", "run"): ("module:Name",),
    ("service", "schema"): ("module:Name",),
    ("service", "pause"): ("fax",),
    ("service", "resume"): ("fax",),
    ("worker", "drop"): ("nobody",),
    ("webhooks", "resend"): ("live",),
    ("redrive",): ("--code", "NOPE"),
    ("redrives",): ("plan_0",),
    ("job", "retry"): ("failed",),
    ("protocols", "check"): ("{data}/commands.jsonl",),
    ("submit-many",): ("{data}/wrong.jsonl",),
    ("service", "new"): ("UPPER", "--step-type", "X"),
    ("certify",): ("module:Name",),
    ("load",): ("module:Name",),
}


@pytest.fixture
def jobs(server: Server, shell: Shell) -> dict[str, str]:
    """One job of each kind, by what stands for it in the tables; `told` has a webhook."""
    ids = {}
    ends = {"succeeded": ResultStatus.SUCCEEDED, "failed": ResultStatus.FAILED_FINAL}
    for name in ("live", "succeeded", "failed"):
        ids[name] = shell.json(*SUBMIT, "--key", name)["jobId"]
        if name in ends:
            server.do(finish(server, ids[name], ends[name]))
    webhook = ("--callback-url", "https://client.example/told")
    ids["told"] = shell.json(*SUBMIT, *webhook, "--key", "told")["jobId"]
    server.do(finish(server, ids["told"], ResultStatus.SUCCEEDED))
    return ids


async def empty_ledger(data: Path) -> None:
    ledger = await open_ledger(load_settings({"LUCIUS_DATA_DIR": str(data)}))
    await ledger.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a ledger, a backup of it, a key, and beside it a ledger that is none."""
    runner, here = CliRunner(), str(tmp_path)
    asyncio.run(empty_ledger(tmp_path))
    runner.invoke(main, ["ledger", "backup", str(tmp_path / "saved.db"), "--data", here])
    create = ["keys", "create", "fixed", "--role", "read", "--all-tenants", "--data", here]
    key = runner.invoke(main, create)
    (tmp_path / "key").write_text(key.stderr.split()[3])
    (tmp_path / "commands.jsonl").write_text(json.dumps(ENVELOPE) + "\n")
    (tmp_path / "wrong.jsonl").write_text(json.dumps({**ENVELOPE, "request_type": "FAX"}) + "\n")
    (tmp_path / "corrupt").mkdir()
    (tmp_path / "corrupt" / "ledger.db").write_bytes(b"this is no database" * 1000)
    return tmp_path


def filled(words: tuple[str, ...], jobs: dict[str, str], data: Path) -> list[str]:
    key = (data / "key").read_text()
    return [jobs.get(word, word.format(data=data, key=key)) for word in words]


def assert_quiet(result: Result) -> None:
    """Ended by its own decision, with a message: not by an exception that nobody caught."""
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    assert "Traceback" not in result.output


def test_the_tables_name_every_command() -> None:
    assert set(DONE) | ELSEWHERE == set(ALL)
    assert set(FAILED) <= set(ALL)


@pytest.mark.parametrize("extra", [(), ("--json",)], ids=["for people", "as JSON"])
@pytest.mark.parametrize("path", DONE, ids=" ".join)
def test_what_is_done_exits_with_0(
    shell: Shell, jobs: dict[str, str], data: Path, path: tuple[str, ...], extra: tuple[str, ...]
) -> None:
    result = shell.run(*path, *filled(DONE[path], jobs, data), *extra)
    assert_quiet(result)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("path", FAILED, ids=" ".join)
def test_what_fails_exits_with_1_and_says_why(
    shell: Shell, jobs: dict[str, str], data: Path, path: tuple[str, ...]
) -> None:
    result = shell.run(*path, *filled(FAILED[path], jobs, data))
    assert_quiet(result)
    assert result.exit_code == 1, result.output
    assert result.stderr.strip()


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_wrong_usage_exits_with_2(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--no-such-option"])
    assert_quiet(result)
    assert result.exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("verify",),
        ("ledger", "prune", "--older-than", "1d"),
        ("ledger", "backup", "{folder}/copy.db"),
        ("ledger", "info"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("given", ["option", "variable"])
def test_a_directory_without_a_ledger_is_wrong_usage_and_stays_without_one(
    tmp_path: Path, words: tuple[str, ...], given: str
) -> None:
    typo = tmp_path / "typo"
    typed = [word.format(folder=tmp_path) for word in words]
    typed += ["--data", str(typo)] if given == "option" else []
    result = CliRunner().invoke(main, typed, env={"LUCIUS_DATA_DIR": str(typo)})
    assert_quiet(result)
    assert result.exit_code == 2
    assert f"there is no ledger in {typo}" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [p for p in DONE if p[0] in ("job", "jobs", "dlq", "outbox")])
def test_without_a_server_a_command_fails_with_a_message(path: tuple[str, ...], data: Path) -> None:
    result = CliRunner().invoke(main, [*path, *filled(DONE[path], {}, data), *NOWHERE])
    assert_quiet(result)
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:9" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("job", "show", ""),
        ("job", "show", "../../etc/passwd"),
        ("job", "show", "a?b#c%00"),
        ("job", "show", "x" * 5000),
        ("job", "show", "ключ"),
        ("job", "events", "x", "--after", "99999999999999999999"),
        ("jobs", "list", "--cursor", "ключ"),
        ("jobs", "--tenant", ""),
        ("jobs", "--from", "yesterday"),
        ("jobs", "cancel", "--from", "yesterday", "--yes"),
        ("jobs", "redrive", "--state", "LIVE", "--yes"),
        ("jobs", "cancel"),
        (*SUBMIT, "--key", "ключ"),
        (*SUBMIT, "--key", "a\nb"),
        (*SUBMIT, "--payload", "null"),
        (*SUBMIT, "--payload", "@/dev/null"),
        (*SUBMIT, "--payload", '{"a": NaN}'),
        (*SUBMIT, "--input", "file://\x00"),
        (*SUBMIT, "--input", "a\x00b"),
        ("jobs", "--api-key", "ключ"),
        ("jobs", "--url", "http://["),
        ("jobs", "--url", "ftp://x"),
        ("jobs", "--url", "nonsense"),
        ("jobs", "--url", ""),
        ("ledger", "prune", "--older-than", "99999999999w"),
        ("up", "--service", ":"),
        ("up", "--service", "no.such.module:X"),
        ("up", "--service", "json:loads"),
        ("up", "--port", "99999"),
        ("up", "--host", "not a host"),
        ("up", "--host", "203.0.113.7"),
        ("up", "--stack", "nonsense"),
    ],
    ids=lambda words: " ".join(words)[:60].encode("unicode_escape").decode(),
)
def test_whatever_is_typed_nobody_sees_a_traceback(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = shell.run(*words)
    assert_quiet(result)
    assert result.exit_code in (0, 1, 2)


@pytest.mark.parametrize("variable", ["LUCIUS_MAX_ATTEMPTS", "LUCIUS_STORAGE_BACKEND"])
def test_a_bad_setting_is_named(tmp_path: Path, variable: str) -> None:
    for words in (("up",), ("settings",), ("verify",), ("service", "run", "a:b")):
        result = CliRunner().invoke(main, list(words), env={variable: "nonsense"})
        assert_quiet(result)
        assert (result.exit_code, variable in result.stderr) == (1, True)


def test_a_ledger_of_a_newer_version_is_refused_with_a_message(data: Path) -> None:
    with sqlite3.connect(data / "ledger.db") as conn:
        conn.execute("PRAGMA user_version = 9999")
    conn.close()
    result = CliRunner().invoke(main, ["ledger", "info", "--data", str(data)])
    assert_quiet(result)
    assert result.exit_code == 1


def test_orders_reach_jobs_in_every_state_that_they_can_move(
    server: Server, shell: Shell, jobs: dict[str, str]
) -> None:
    server.do(server.world.apply(jobs["live"], PauseRequested()))
    assert shell.json("jobs", "resume", "--yes")["applied"] == 1
    assert shell.json("jobs", "pause", "--tenant", "default", "--yes")["applied"] == 1
    server.do(server.world.apply(jobs["live"], CancelRequested()))
    assert shell.json("jobs", "redrive", "--state", "CANCELLED", "--yes")["applied"] == 1
