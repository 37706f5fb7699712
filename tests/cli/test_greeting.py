"""What `lucius up` says when it begins and when it is told to end."""

import logging
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from lucius.adapters.configs.files import FileConfig
from lucius.app.lifecycle import say_stopping
from lucius.app.processes import first_command
from lucius.contract import DEFAULT_URL
from lucius.services import Embedding, Ocr
from tests.cli.test_ending import begin, heard
from tests.cli.test_ending import up as telling
from tests.cli.up import up

STUBBORN = "tests.cli.stubborn:Stubborn"
CATALOG = FileConfig().catalog()


@pytest.mark.xdist_group("stacks")
def test_a_server_names_its_services_its_data_its_pages_and_what_to_try(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from lucius.platform import Service\n"
        "class Mine(Service):\n"
        "    name, step_types = 'ocr', ('OCR',)\n"
        "    def execute(self, task): ...\n"
    )
    with up(tmp_path, "--no-services", "--service", "mine:Mine") as server:
        assert server.stop() == 0
        said = server.log()
        assert f"services: ocr; data directory: {tmp_path / '.lucius'}" in said
        assert (
            f"the console is at {server.url}/ and the API is described at {server.url}/docs" in said
        )
        hint = f"lucius submit --type OCR --input FILE --wait --url {server.url}"
        assert f"try next, in another terminal: {hint}" in said


@pytest.mark.xdist_group("stacks")
def test_ctrl_c_says_how_many_steps_are_waited_for(tmp_path: Path) -> None:
    with telling(tmp_path, STUBBORN, LUCIUS_DRAIN_SECONDS="0.1") as (server, url):
        begin(server, url)
        server.send_signal(signal.SIGINT)
        line = heard(server, "stopping; ")
        assert "waiting for 1 step that is at work, 0.1 s at most (LUCIUS_DRAIN_SECONDS)" in line


@pytest.mark.parametrize(
    ("running", "words"),
    [(0, "no step is at work"), (1, "1 step that is at work"), (2, "2 steps that are at work")],
)
def test_steps_are_counted_in_words(
    caplog: pytest.LogCaptureFixture, running: int, words: str
) -> None:
    with caplog.at_level(logging.INFO, "lucius"):
        say_stopping(running, timedelta(seconds=30))
    assert words in caplog.text


def test_only_what_the_services_here_can_do_is_suggested() -> None:
    assert first_command(DEFAULT_URL, [Ocr()], CATALOG) == (
        "lucius submit --type OCR --input FILE --wait"
    )
    assert first_command("http://127.0.0.1:1", [Embedding()], CATALOG) == (
        "lucius submit --type EMBEDDING --input FILE --wait --url http://127.0.0.1:1"
    )
    assert first_command(DEFAULT_URL, [], CATALOG) is None
