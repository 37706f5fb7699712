"""Without a server: help is quick, mistakes are messages, nothing ends in a traceback."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

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


def options(command: click.Command) -> list[click.Parameter]:
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(option for each in inner for option in options(each))]


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
