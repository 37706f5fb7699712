"""A message names the thing, the value that was wrong, and the option or setting that helps."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from lucius.cli.main import main

SUBMIT = ("submit", "--type", "OCR", "--input", "s3://b/in.pdf")


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        ((*SUBMIT, "--payload", "{"), {}, "is not JSON: "),
        ((*SUBMIT, "--payload", "{"), {}, "@ and the name of a file"),
        ((*SUBMIT, "--payload", '{"a": NaN}'), {}, "is not JSON: it has no NaN"),
        ((*SUBMIT, "--payload", "@no"), {}, "'no' cannot be read: No such file or directory"),
        ((*SUBMIT, "--url", "nonsense"), {}, "'nonsense' is no address of a server"),
        ((*SUBMIT, "--url", "ftp://x"), {}, "must begin with http://, https:// or unix:"),
        ((*SUBMIT, "--api-key", "ключ"), {}, "check LUCIUS_API_KEY or LUCIUS_API_KEY_FILE"),
        ((*SUBMIT, "--api-key-file", "no"), {}, "API key cannot be read: no: No such file"),
        (
            (*SUBMIT, "--api-key", "k", "--api-key-file", "no"),
            {},
            "either --api-key or --api-key-f",
        ),
        (SUBMIT, {"LUCIUS_API_KEY_FILE": "no"}, "API key cannot be read: no: No such file"),
        (("up", "--stack", "cloud"), {}, "'cloud' is not one of 'embedded', 'nats', 'azure'"),
        (("up",), {"LUCIUS_MAX_ATTEMPTS": "x"}, "must be a whole number from 1 to 20, not 'x'"),
        (("up", "--port", "0"), {"LUCIUS_WEBHOOK_SECRET": "abc"}, "LUCIUS_WEBHOOK_SECRET: "),
        (("up", "--port", "0", "--data", "/dev/null/x"), {}, "/dev/null"),
        (
            ("up", "--port", "0"),
            {"LUCIUS_PROTOCOLS": "no.yaml"},
            "no.yaml: cannot be read: No such file or directory (LUCIUS_PROTOCOLS names it)",
        ),
    ],
)
def test_a_message_can_be_understood_the_first_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    env: dict[str, str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, list(words), env=env)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert "Errno" not in result.stderr
    assert "Is the server running?" not in result.stderr


def test_a_port_that_is_taken_is_named_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["up", "--port", port])
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in result.stderr
    assert "--port names another" in result.stderr
