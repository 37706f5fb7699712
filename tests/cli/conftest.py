"""A running server, and the command line pointed at it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lucius.cli.main import main
from tests.cli.server import Server, running


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@dataclass
class Shell:
    url: str

    def run(self, *args: str) -> Result:
        env = {"LUCIUS_URL": self.url, "COLUMNS": "200"}
        return CliRunner().invoke(main, list(args), env=env)

    def json(self, *args: str) -> Any:
        result = self.run(*args, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def shell(server: Server) -> Shell:
    return Shell(server.url)
