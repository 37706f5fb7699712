"""Without a server: help is quick, mistakes are messages, nothing ends in a traceback."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lucius.app.settings import load_settings
from lucius.cli.ledger import Age
from lucius.cli.main import main

SLOW = {"asyncio", "httpx", "pydantic", "rich", "uvicorn"}


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        here = (*path, name)
        found += commands(command, *here) if isinstance(command, click.Group) else [here]
    return found


ALL = commands(main)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_explains_itself_and_takes_json(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    assert "--json" in result.stdout


def command_at(path: tuple[str, ...]) -> click.Command:
    found: click.Command = main
    for name in path:
        assert isinstance(found, click.Group)
        found = found.commands[name]
    return found


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_says_what_it_is_for(path: tuple[str, ...]) -> None:
    found = [each for each in command_at(path).params if isinstance(each, click.Option)]
    assert [each.name for each in found if not each.help] == []


@pytest.mark.parametrize("group", [(), *sorted({path[:-1] for path in ALL if path[1:]})], ids=str)
def test_no_summary_of_a_command_is_cut(group: tuple[str, ...]) -> None:
    listed = CliRunner().invoke(main, [*group, "--help"]).stdout.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


def options(command: click.Command) -> list[click.Parameter]:
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(option for each in inner for option in options(each))]


def test_every_variable_of_the_command_line_is_a_setting_and_has_its_default() -> None:
    read = {option.envvar: option.default for option in options(main) if option.envvar}
    assert {"LUCIUS_URL", "LUCIUS_API_KEY", "LUCIUS_DATA_DIR"} == set(read)
    settings = load_settings({str(name): str(default or "x") for name, default in read.items()})
    assert settings.warnings == ()
    assert load_settings({}).url == read["LUCIUS_URL"]


def test_help_imports_nothing_slow() -> None:
    script = (
        "import sys; from lucius.cli.main import main; main(['--help'], standalone_mode=False);"
        f"print('loaded', sorted({SLOW!r} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.endswith("loaded []\n")


def test_a_command_that_asks_the_server_loads_no_settings() -> None:
    script = (
        "import sys; from lucius.cli.main import main\n"
        "try: main(['jobs', '--url', 'http://127.0.0.1:9'])\n"
        "except SystemExit: print('loaded', sorted({'pydantic', 'lucius.settings'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout == "loaded []\n"


@pytest.mark.parametrize("path", [("jobs",), ("job", "show", "x"), ("protocols",), ("dlq",)])
def test_without_a_server_a_message_says_what_to_do(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:9: the connection was refused\n" in result.stderr
    assert "lucius up" in result.stderr
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("args", [["nope"], ["submit"], ["jobs", "--limit", "0"], ["job"]])
def test_wrong_usage_exits_with_two(args: list[str]) -> None:
    assert CliRunner().invoke(main, args).exit_code == 2


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["jobs", "--url", "http://127.0.0.1:9"], "UNREACHABLE", 1),
        (["jobs", "--api-key", "ключ"], "FAILED", 1),
        (["jobs", "--limit", "0"], "USAGE", 2),
        (["submit"], "USAGE", 2),
        (["nope"], "USAGE", 2),
        (["ledger", "info", "--data", "/nowhere"], "USAGE", 2),
        (["up", "--host", "203.0.113.7"], "UNSAFE_ADDRESS", 1),
        (["up", "--service", "a"], "UNSUPPORTED", 1),
        (["service", "run", "a:b"], "FAILED", 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_with_json_a_mistake_is_an_object_with_a_code(
    args: list[str], code: str, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*args, "--json"])
    said = json.loads(result.stderr)
    assert (result.exit_code, said["code"], result.stdout) == (exit_code, code, "")
    assert said["message"]


@pytest.mark.parametrize(
    ("text", "span"), [("90m", timedelta(minutes=90)), ("30d", timedelta(days=30))]
)
def test_an_age_is_a_number_with_a_unit(text: str, span: timedelta) -> None:
    assert Age().convert(text, None, None) == span


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y"])
def test_anything_else_is_no_age(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Age().convert(text, None, None)
