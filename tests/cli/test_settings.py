"""`lucius settings`, and who says that a variable does nothing."""

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lucius.app.settings import load_settings
from lucius.app.telemetry import observed
from lucius.cli.main import main
from tests.cli.up import up

UNKNOWN = {"LUCIUS_MAX_ATEMPTS": "3"}
SAID = "unknown setting LUCIUS_MAX_ATEMPTS: did you mean LUCIUS_MAX_ATTEMPTS?"


def lucius(*words: str, **env: str) -> Result:
    return CliRunner().invoke(main, words, env=env)


def test_every_setting_is_a_line_with_its_value_and_its_source(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    file = str(tmp_path / "secret")
    shown = lucius("settings", LUCIUS_SYSTEM="s1", LUCIUS_WEBHOOK_SECRET_FILE=file).stdout
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in shown.splitlines()}
    assert lines["variable"] == ["value", "source"]
    assert lines["LUCIUS_SYSTEM"] == ["s1", "environment"]
    assert lines["LUCIUS_PUBLIC_URL"] == ["-", "default"]
    assert lines["LUCIUS_WEBHOOK_SECRET"] == ["********", f"file {file}"]


@pytest.mark.xdist_group("stacks")
def test_those_of_the_running_server_are_shown_not_those_of_this_shell(tmp_path: Path) -> None:
    with up(
        tmp_path,
        "--no-services",
        LUCIUS_SYSTEM="theirs",
        LUCIUS_CALLBACK_KEYS="k1:0123456789abcdef",
    ) as server:
        here = {"LUCIUS_URL": server.url, "LUCIUS_SYSTEM": "mine"}
        shown = lucius("settings", "--server", **here)
        lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in shown.stdout.splitlines()}
        assert lines["LUCIUS_SYSTEM"] == ["theirs", "environment"]
        assert lines["LUCIUS_CALLBACK_KEYS"] == ["********", "environment"]
        assert lines["LUCIUS_PUBLIC_URL"] == [server.url, "default"]
        assert lucius("settings", **here).stdout.split()[4] == "mine"


@pytest.mark.parametrize("words", [("settings",), ("keys", "list")], ids=str)
def test_a_command_says_once_what_it_does_not_know(words: tuple[str, ...], tmp_path: Path) -> None:
    said = lucius(*words, LUCIUS_DATA_DIR=str(tmp_path), **UNKNOWN)
    assert said.stderr == f"lucius: warning: {SAID}\n"


def test_a_process_says_it_in_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    try:
        with observed(load_settings({**UNKNOWN, "LUCIUS_LOG_FORMAT": "json"})):
            pass
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == SAID
