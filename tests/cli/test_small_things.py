"""What a new user tries: short ids, `last`, how long ago, every attempt, Ctrl-C, files of commands."""

import asyncio
import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner

from lucius.cli import load, screen, session, watching
from lucius.cli.bulk import Moment
from lucius.cli.main import main
from lucius.core.ids import new_job_id
from lucius.core.inputs import CancelRequested, ResultStatus
from lucius.dev.load import Driver, JobEnd, LoadPlan, Target
from tests.api.world import ENVELOPE
from tests.cli.conftest import Shell
from tests.cli.server import Server
from tests.cli.test_commands import SUBMIT, finish
from tests.virtual import VirtualLoop, run_virtually


def test_the_last_job_is_the_newest(shell: Shell) -> None:
    shell.run(*SUBMIT, "--key", "a")
    newest = shell.json(*SUBMIT, "--key", "b")["jobId"]
    assert shell.json("job", "show", "last")["jobId"] == newest


def test_there_is_no_last_job_before_the_first(shell: Shell) -> None:
    result = shell.run("job", "show", "last")
    assert (result.exit_code, "no job yet" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("away", "said"), [(150, "(in 2m)"), (-7200, "(2h ago)"), (-86400 * 3, "(3d ago)")]
)
def test_an_instant_says_how_far_away_it_is(away: int, said: str) -> None:
    at = datetime.now(UTC) + timedelta(seconds=away)
    assert screen.moment(f"{at:%Y-%m-%dT%H:%M:%S.%fZ}") == f"{at:%Y-%m-%dT%H:%M:%SZ} {said}"


class Listed:
    """A client that lists these jobs, as the server would by their time."""

    def __init__(self, *job_ids: str) -> None:
        self._ids = job_ids

    async def jobs(self, **query: object) -> dict[str, object]:
        first, after = str(query["created_from"]), str(query["created_to"])
        found = [j for j in self._ids if first <= _accepted(j) < after]
        return {"jobs": [{"jobId": j} for j in found], "next_cursor": None}


def _accepted(job_id: str) -> str:
    milliseconds = int(job_id[4:16], 16)
    at = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


NOW = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
ONE, OTHER = new_job_id(NOW), new_job_id(NOW + timedelta(days=40))


@pytest.mark.parametrize("length", [9, 12, 16, 20, 35])
async def test_the_beginning_of_an_id_names_its_job(length: int) -> None:
    client = Listed(ONE, OTHER)
    assert await session.whole_id(client, ONE[:length]) == ONE  # type: ignore[arg-type]
    assert await session.whole_id(client, ONE[4:length]) == ONE  # type: ignore[arg-type]
    assert await session.whole_id(client, ONE) == ONE  # type: ignore[arg-type]


async def test_a_beginning_that_several_ids_have_is_refused_with_them() -> None:
    with pytest.raises(click.UsageError, match="several ids") as caught:
        await session.whole_id(Listed(ONE, OTHER), ONE[:6])  # type: ignore[arg-type]
    assert ONE in caught.value.message
    assert OTHER in caught.value.message


@pytest.mark.parametrize(
    ("text", "ago"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172800)]
)
def test_a_moment_may_be_how_long_ago(text: str, ago: int) -> None:
    given = datetime.fromisoformat(Moment().convert(text, None, None))
    assert abs((datetime.now(UTC) - given).total_seconds() - ago) < 60


def test_a_moment_that_is_none_says_what_to_give(shell: Shell) -> None:
    result = shell.run("jobs", "--from", "yesterday")
    assert result.exit_code == 2
    assert "2026-01-31T12:00:00Z" in result.stderr
    assert shell.run("jobs", "--from", "1h").exit_code == 0


def test_every_attempt_is_shown_and_waiting_is_not_working(server: Server, shell: Shell) -> None:
    job_id = shell.json(*SUBMIT)["jobId"]
    assert shell.run("job", "show", job_id).exit_code == 0
    server.do(finish(server, job_id, ResultStatus.SUCCEEDED))
    shown = shell.run("job", "show", job_id).stdout
    assert "attempt  sent" in shown
    assert shown.count("DONE") == 2
    attempts = shell.json("job", "show", job_id)["executions"]
    assert [each["step_id"] for each in attempts] == ["ocr", "embedding"]


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

    monkeypatch.setattr("lucius.cli.services.named_service", interrupted, raising=False)
    monkeypatch.setattr("lucius.app.services.named_service", interrupted)
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


def test_a_protocol_file_is_checked_without_a_server(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "protocols.yaml"
    file.write_text("protocols: [")
    result = shell.run("protocols", "check", str(file))
    assert result.exit_code == 1
    assert "protocols.yaml" in result.stderr
    assert main.commands["protocols"] is not None


SHOUT = """
step_types:
  SHOUT: {service: shout}
protocols:
  - {request_type: OCR->SHOUT, protocol_id: ocr_shout_v1, steps: [OCR, SHOUT]}
"""


def test_a_protocol_file_may_use_what_the_packaged_ones_define(tmp_path: Path) -> None:
    file = tmp_path / "shout.yaml"
    file.write_text(SHOUT)
    checked = CliRunner().invoke(main, ["protocols", "check", str(file)])
    assert (checked.exit_code, "beside the packaged ones" in checked.output) == (0, True)
    assert checked.output.rstrip().endswith("OCR->SHOUT")
    file.write_text(SHOUT.replace("[OCR, SHOUT]", "[OCR, WHISPER]"))
    wrong = CliRunner().invoke(main, ["protocols", "check", str(file)])
    assert (wrong.exit_code, wrong.output.count("WHISPER")) == (1, 1)
    assert "shout.yaml:5: /protocols/0/steps/1: there is no step type WHISPER" in wrong.output
    assert "no step type OCR" not in wrong.output


def test_the_command_of_the_sign_in_page_makes_a_key(tmp_path: Path) -> None:
    page = files("lucius.http.console").joinpath("templates/sign_in.html").read_text()
    (command,) = re.findall(r"<code>lucius (keys create [^<]+)</code>", page)
    made = CliRunner().invoke(main, [*command.split(), "--data", str(tmp_path)])
    assert made.exit_code == 0, made.output


def test_a_job_of_which_nothing_is_heard_is_asked_why_once(
    server: Server, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "QUIET_SECONDS", 0.05)
    job_id = shell.json(*SUBMIT)["jobId"]

    async def end() -> None:
        await asyncio.sleep(0.5)  # ten times as long as it takes to be asked
        await server.world.engine.apply(job_id, CancelRequested(immediate=True))

    ending = asyncio.run_coroutine_threadsafe(end(), server.loop)
    shown = shell.run("job", "watch", job_id).output
    ending.result(60)
    waits = [line for line in shown.splitlines() if line.startswith("waits: ")]
    assert len(waits) == 1
    assert re.match(r"waits: [A-Z_]+: ", waits[0])


class Stuck:
    """A target whose jobs do not end."""

    async def run(self, tenant: str, kind: str) -> JobEnd:
        await asyncio.Future()
        raise AssertionError


def test_a_load_of_which_nothing_ends_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def main_(loop: VirtualLoop) -> None:
        driver = Driver(cast(Target, Stuck()), LoadPlan(None, 1, 1, None, {"a": 1}, {}))

        async def why() -> str:
            return "NO_WORKER_EVER: no worker of ocr was ever seen"

        with suppress(TimeoutError):
            async with asyncio.timeout(240):
                await load.shown(driver, driver.run(), why)

    run_virtually(main_)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) < 5, "not one line a second"
    assert shown[-1] == "nothing ends for 10 s: NO_WORKER_EVER: no worker of ocr was ever seen"
