"""`lucius up --stack azure` refuses what cannot work before it starts anything."""

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lucius.bootstrap.listening import LOOPBACK, listen
from lucius.cli.main import main


def up(folder: Path, *words: str) -> Result:
    data = folder / "data"
    given = ["up", "--stack", "azure", "--no-services", "--data", str(data), *words]
    result = CliRunner().invoke(main, given)
    assert not (data / "azurite").exists(), "nothing was started"
    return result


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with closing(listen(LOOPBACK, 0)) as taken:
        port = str(taken.getsockname()[1])
        result = up(tmp_path, "--port", port)
    assert (result.exit_code, port in result.stderr) == (1, True), result.stderr


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
