"""`lucius bus provision` on the command line."""

import json

import pytest
from click.testing import CliRunner

from lucius.app.settings import Settings
from lucius.cli.main import main


def test_a_bus_that_needs_none_is_refused_with_the_setting() -> None:
    result = CliRunner().invoke(main, ["bus", "provision"])
    assert result.exit_code == 1
    assert "LUCIUS_BUS_BACKEND=servicebus" in result.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [(["created topic t"], "created topic t\n1 change\n"), ([], "nothing to change\n")],
)
def test_it_prints_what_it_changed(
    monkeypatch: pytest.MonkeyPatch, changes: list[str], said: str
) -> None:
    async def provision(settings: Settings) -> list[str]:
        return changes

    monkeypatch.setattr("lucius.app.provisioning.provision_bus", provision)
    assert CliRunner().invoke(main, ["bus", "provision"]).stdout == said
    as_json = CliRunner().invoke(main, ["bus", "provision", "--json"]).stdout
    assert json.loads(as_json) == {"changes": changes}
