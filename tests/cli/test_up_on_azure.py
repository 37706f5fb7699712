"""`lucius up --stack azure` refuses what cannot work before it starts anything; others find its settings."""

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lucius.app import stacks
from lucius.app.lifecycle import LOOPBACK, listen
from lucius.cli.ledger import settings_of_command
from lucius.cli.main import main
from lucius.cli.processes import logs


def up(folder: Path, *words: str) -> Result:
    data = folder / "data"
    given = ["up", "--stack", "azure", "--no-services", "--data", str(data), *words]
    result = CliRunner().invoke(main, given)
    assert not (data / "azurite").exists(), "nothing was started"
    return result


@pytest.mark.slow  # it needs Azurite
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with closing(listen(LOOPBACK, 0)) as taken:
        port = str(taken.getsockname()[1])
        result = up(tmp_path, "--port", port)
    assert (result.exit_code, port in result.stderr) == (1, True), result.stderr


@pytest.mark.slow  # it needs Azurite
@pytest.mark.parametrize(
    ("text", "said"),
    [("protocols: nonsense", '"nonsense" is not of type "array"'), (None, "cannot be read")],
)
def test_protocols_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, said: str
) -> None:
    path = tmp_path / "protocols.yaml"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("LUCIUS_PROTOCOLS", str(path))
    result = up(tmp_path, "--port", "0")
    assert result.exit_code == 1
    assert str(path) in result.stderr
    assert said in result.stderr


def test_an_address_that_others_reach_without_authentication(tmp_path: Path) -> None:
    result = up(tmp_path, "--host", "0.0.0.0")
    assert (result.exit_code, "LUCIUS_AUTH=keys or jwt" in result.stderr) == (1, True)


def test_settings_of_a_running_stack_are_found_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count after the environment, and only while it runs."""
    odd = "it's; a $name"
    stacks.write(tmp_path, {"LUCIUS_SYSTEM": "stack", "LUCIUS_REGION": odd, "HOME": "/"})
    assert stacks.read(tmp_path) == {"LUCIUS_SYSTEM": "stack", "LUCIUS_REGION": odd}
    assert (tmp_path / stacks.NAME).stat().st_mode & 0o077 == 0, "it holds secrets"
    assert settings_of_command(tmp_path).system == "stack"
    monkeypatch.setenv("LUCIUS_SYSTEM", "mine")
    assert settings_of_command(tmp_path).system == "mine"
    monkeypatch.delenv("LUCIUS_SYSTEM")
    stacks.remove(tmp_path)
    assert settings_of_command(tmp_path).system == "lucius"


def test_logs_are_json_for_programs_unless_a_setting_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (logs(False), logs(True)) == ({}, {"LUCIUS_LOG_FORMAT": "json"})
    monkeypatch.setenv("LUCIUS_LOG_FORMAT", "text")
    assert logs(True) == {"LUCIUS_LOG_FORMAT": "text"}
