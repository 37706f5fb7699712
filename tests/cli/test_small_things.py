"""What a new user tries: short ids, `last`, how long ago, every attempt, Ctrl-C, files of commands."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from lucius.cli.main import main
from lucius.core.ids import new_job_id
from tests.api.world import ENVELOPE
from tests.cli.conftest import Shell
from tests.cli.server import Server
from tests.cli.test_commands import SUBMIT


def _accepted(job_id: str) -> str:
    milliseconds = int(job_id[4:16], 16)
    at = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


NOW = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
ONE, OTHER = new_job_id(NOW), new_job_id(NOW + timedelta(days=40))


def test_ctrl_c_while_waiting_says_that_the_job_goes_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shell.json(*SUBMIT)["jobId"]

    async def interrupted(*given: object, **more: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("lucius.cli.watching.watch_job", interrupted)
    result = shell.run("job", "watch", job_id)
    assert result.exit_code == 130
    assert f"the job goes on; `lucius job watch {job_id}`" in result.stderr


def test_ctrl_c_before_a_process_is_ready_is_said_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object, **more: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("lucius.cli.service.named_service", interrupted, raising=False)
    monkeypatch.setattr("lucius.bootstrap.adapters.services.named_service", interrupted)
    words = ["service", "run", "json:dumps", "--url", "http://127.0.0.1:1", "--data", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stderr) == (1, "lucius: interrupted\n")


def test_a_file_of_commands_is_submitted_and_finds_its_jobs_again(
    shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "commands.jsonl"
    commands = [{**ENVELOPE, "doc_id": f"d{n}", "idempotency_key": f"k{n}"} for n in range(3)]
    file.write_text("\n".join(map(json.dumps, commands)) + "\n\n")
    first, again = shell.run("submit-many", str(file)), shell.run("submit-many", str(file))
    assert len(set(first.stdout.split())) == 3
    assert first.stdout == again.stdout
    file.write_text(json.dumps({**ENVELOPE, "request_type": "FAX"}) + "\n{}\n")
    refused = shell.run("submit-many", str(file))
    assert refused.exit_code == 1
    assert "line 1: UNKNOWN_REQUEST_TYPE" in refused.stderr


@pytest.mark.parametrize("text", ["", "{", "[1]\n"])
def test_a_file_that_is_none_of_commands_sends_nothing(
    server: Server, shell: Shell, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "commands.jsonl"
    file.write_text(json.dumps(ENVELOPE) + "\n" + text if text else "")
    assert shell.run("submit-many", str(file)).exit_code == 2
    assert server.world.jobs == {}
