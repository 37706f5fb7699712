"""A server ends after a signal, whatever its services do; a second signal ends it at once."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from lucius.app.lifecycle import free_port
from tests.cli.test_stopping import ENVELOPE
from tests.cli.up import LUCIUS, clean_environment

ROOT = Path(__file__).parents[2]


@contextmanager
def up(data: Path, service: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server whose output is read line by line."""
    port = str(free_port())
    words = [
        LUCIUS,
        "up",
        "--port",
        port,
        "--no-services",
        "--data",
        str(data),
        "--service",
        service,
    ]
    server = subprocess.Popen(
        [*words, "--json"],
        cwd=ROOT,
        env=clean_environment(PYTHONPATH=str(ROOT), **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        heard(server, '"ready": true')
        yield server, f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.communicate()


def heard(server: "subprocess.Popen[str]", words: str) -> str:
    """The first line with these words, once it is there."""
    assert server.stdout is not None
    return next(line for line in server.stdout if words in line)


def begin(server: "subprocess.Popen[str]", url: str) -> None:
    """A job that its service works on; the answer may be late, if there is one at all."""
    with httpx.Client(base_url=url) as client, suppress(httpx.ReadTimeout):
        client.post("/v1/orchestrate", json=ENVELOPE)
    heard(server, "begun job_")


def test_a_step_that_ignores_its_cancellation_does_not_keep_the_server(tmp_path: Path) -> None:
    with up(tmp_path, "tests.cli.stubborn:Stubborn", LUCIUS_DRAIN_SECONDS="0.1") as (server, url):
        begin(server, url)
        server.terminate()
        assert "ignores its cancellation" in heard(server, "left behind")
        assert server.wait(30) == 1


def test_a_service_that_holds_up_the_loop_is_named_and_cannot_keep_the_server(
    tmp_path: Path,
) -> None:
    with up(tmp_path, "tests.cli.stubborn:Holding", LUCIUS_DRAIN_SECONDS="0.1") as (server, url):
        begin(server, url)
        named = heard(server, "holds up the event loop")
        assert "ocr holds up the event loop, in stubborn.py:" in named
        server.terminate()
        heard(server, "the process of the services does not end, and is killed")
        assert server.wait(30) == 1


def test_a_second_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    with up(tmp_path, "tests.cli.stubborn:Holding", LUCIUS_DRAIN_SECONDS="3600") as (server, url):
        begin(server, url)
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGINT)
        assert server.wait(30) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
