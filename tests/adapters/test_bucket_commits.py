"""Exactly-once over a bucket: of two workers one commits, and what a killed one has begun is finished."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lucius.app.adapters import open_workspace
from lucius.app.settings import load_settings
from lucius.platform.task import SMALL
from lucius.ports.workspace import Workspace
from tests.adapters.bucket_child import directive, work
from tests.s3_server import S3Server, shared_s3

ROOT = Path(__file__).parents[2]
ROUNDS = 20


@pytest.fixture(params=["s3", "gs"])
def root(request: pytest.FixtureRequest, server: S3Server) -> str:
    return f"{request.param}://{server.bucket()}/jobs/"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> S3Server:
    found = shared_s3()
    for name, value in found.known.items():
        monkeypatch.setenv(name, value)
    return found


def opened(root: str) -> Workspace:
    """Each has clients of its own, as processes have."""
    return open_workspace(load_settings({**os.environ, "LUCIUS_WORKSPACE_URL": root}))


def output(root: str) -> str:
    return f"{root}lucius/a/job_1/ocr/output.txt"


async def child(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.adapters.bucket_child", *words]
    ended = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode, ended.stdout.strip()


@pytest.mark.parametrize("size", [10, SMALL + 1])
async def test_of_two_workers_that_commit_at_once_one_has_an_effect(
    size: int, root: str, server: S3Server
) -> None:
    winners = set()
    for number in range(ROUNDS):
        place = f"{root}{number}/"
        one, two = await asyncio.gather(
            work(opened(place), directive(place, 1), b"1" * size),
            work(opened(place), directive(place, 2), b"2" * size),
        )
        assert one[0] == two[0], "both report the same"
        winners.add(one[0].attempt_no)
        content = await opened(place).read(output(place))
        assert content == str(one[0].attempt_no).encode() * size
    assert winners <= {1, 2}


async def test_of_two_processes_that_commit_at_once_one_has_an_effect(
    root: str, server: S3Server
) -> None:
    said = await asyncio.gather(child(root, "1", "one"), child(root, "2", "two"))
    ((_, winner), (_, other)) = said
    assert winner == other
    assert await opened(root).read(output(root)) == {"worker 1": b"one", "worker 2": b"two"}[winner]


async def test_what_a_killed_worker_has_committed_is_finished_and_not_done_again(
    root: str, server: S3Server
) -> None:
    assert (await child(root, "1", "one", "die"))[0] == -signal.SIGKILL
    assert await opened(root).read(output(root)) is None, "it was killed before that"
    record, executed = await work(opened(root), directive(root, 2), b"two")
    assert not executed
    assert record.worker_id == "worker 1"
    assert await opened(root).read(output(root)) == b"one"
