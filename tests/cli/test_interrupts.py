"""A command that starts a service, as `lucius load` and `lucius certify` do, ends it when it is ended."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lucius.app.stacks import die_with_parent
from tests.cli.up import LUCIUS, clean_environment

pytestmark = [
    pytest.mark.xdist_group("stacks"),
    pytest.mark.skipif(
        sys.platform != "linux", reason="processes are followed by Linux's own means"
    ),
]
SERVICE = """
import os, time
from lucius.platform import SyncTask, service

@service("endless", "ENDLESS")
def endless(task: SyncTask) -> None:
    with open(os.environ["TOLD"], "a") as told:
        told.write(f"{os.getpid()}\\n")
    while True:
        time.sleep(1)
"""
LIMIT = 120.0


@contextmanager
def begun(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command, and a handle of the service's process, once that is at work."""
    (folder / "endless.py").write_text(SERVICE)
    told = folder / "told"
    os.mkfifo(told)
    process = subprocess.Popen(
        [LUCIUS, *words],
        cwd=folder,
        env={**clean_environment(), "TOLD": str(told)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    reader = os.open(told, os.O_RDONLY | os.O_NONBLOCK)
    handle = -1
    try:
        assert select.select([reader], [], [], LIMIT)[0], "no step has begun"
        handle = os.pidfd_open(int(os.read(reader, 100).split()[0]))
        yield process, handle
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        if handle >= 0:
            os.close(handle)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_service_ends_with_the_command(tmp_path: Path, how: signal.Signals) -> None:
    with begun(tmp_path, "load", "endless:endless", "--jobs", "1") as (process, service):
        process.send_signal(how)
        assert process.wait(LIMIT) != 0
        assert select.select([service], [], [], LIMIT)[0], "the service lives on"
