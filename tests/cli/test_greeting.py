"""What `lucius up` says when it begins and when it is told to end."""

import signal
from pathlib import Path

import pytest

from lucius.configs.files import FileConfig
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
