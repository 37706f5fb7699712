"""Narrow terminals and `NO_COLOR`: no id is cut, step and state stay, and no colour comes through."""

import re

import pytest
from click.testing import CliRunner

from lucius.adapters.configs.files import FileConfig
from lucius.cli.main import main
from lucius.core.inputs import ResultStatus
from tests.api.world import World
from tests.cli.conftest import Shell
from tests.cli.server import Server, running
from tests.cli.test_commands import SUBMIT, finish

WIDTHS = ["20", "40", "60", "80", "120"]


def ageless(text: str) -> list[list[str]]:
    """Its words by line; a second that passes between two looks makes no difference."""
    return [re.sub(r"\b\d+[smhd]\b", "AGE", line).split() for line in text.splitlines()]


def shown(server: Server, columns: str, *words: str) -> str:
    env = {"LUCIUS_URL": server.url, "COLUMNS": columns}
    return CliRunner().invoke(main, list(words), env=env).stdout


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_width_cuts_an_id_a_step_or_a_state(server: Server, shell: Shell, columns: str) -> None:
    job_id = shell.json(*SUBMIT, "--tenant", "a-tenant-with-a-long-name")["jobId"]
    server.do(finish(server, job_id, ResultStatus.SUCCEEDED))
    one = shown(server, columns, "job", "show", job_id)
    steps = [line.split()[1:4] for line in one.splitlines() if line.startswith("✔")]
    assert steps == [
        ["ocr", "ocr-service", "SUCCEEDED"],
        ["embedding", "embedding-service", "SUCCEEDED"],
    ]
    for words in (("jobs",), ("job", "events", job_id), ("why", job_id)):
        assert ageless(shown(server, columns, *words)) == ageless(shown(server, "200", *words))
    assert shown(server, columns, "jobs").splitlines()[1].split()[:2] == [job_id, "SUCCEEDED"]


def test_no_color_is_kept(server: Server, shell: Shell) -> None:
    shell.run(*SUBMIT)
    for no_color, escapes in (("", True), ("1", False)):
        env = {"LUCIUS_URL": server.url, "NO_COLOR": no_color}
        result = CliRunner().invoke(main, ["jobs"], env=env, color=True)
        assert ("\x1b[" in result.stdout) is escapes


@pytest.mark.parametrize(
    "words", [("submit", "--input", "s3://b/in"), ("jobs",), ("jobs", "pause")]
)
def test_a_type_that_the_shell_has_cut_at_its_arrow_is_explained(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--type", "OCR-"])
    assert result.exit_code == 2
    assert "took > for a redirection" in " ".join(result.stderr.split())
    assert "'OCR->EMBEDDING'" in result.stderr


def test_a_succeeded_job_of_one_step_just_succeeded() -> None:
    with running(World(FileConfig().catalog())) as server:
        shell = Shell(server.url)
        job_id = shell.json("submit", "--type", "OCR", "--input", "s3://b/in.pdf")["jobId"]
        server.do(finish(server, job_id, ResultStatus.SUCCEEDED))
        assert shown(server, "80", "job", "show", job_id).splitlines()[1] == "it succeeded"
