"""A workspace that a process of its own writes: what that process does, and what happens when it dies."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.workspaces import apart
from lucius.workspaces.apart import LocalWorkspaceApart
from lucius.workspaces.local import LocalWorkspace
from lucius.workspaces.packets import Packets
from lucius.workspaces.writer_child import Reports


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[LocalWorkspaceApart]:
    opened = LocalWorkspaceApart(tmp_path / "jobs", writable=[tmp_path / "out"])
    (tmp_path / "out").mkdir()
    await opened.writer.started()
    yield opened
    await opened.close()


def uri(tmp_path: Path, name: str) -> str:
    return (tmp_path / "jobs" / name).as_uri()


async def refuse(*args: Any, **options: Any) -> Any:
    raise AssertionError("written by this process")


async def test_small_objects_are_written_by_the_process(
    workspace: LocalWorkspaceApart, tmp_path: Path
) -> None:
    with (
        patch.object(LocalWorkspace, "create_all", refuse),
        patch.object(LocalWorkspace, "write", refuse),
        patch.object(LocalWorkspace, "remove", refuse),
    ):
        record = (uri(tmp_path, "j/_commits/a.json"), b"{}")
        output = ((tmp_path / "out" / "a.txt").as_uri(), b"text")
        assert await workspace.create_all([record, output]) == 2
        assert await workspace.create_all([record, output]) == 0
        await workspace.write(uri(tmp_path, "j/note"), b"new")
        assert await workspace.read(record[0]) == b"{}"
        assert (tmp_path / "out" / "a.txt").read_bytes() == b"text"
        assert await workspace.read(uri(tmp_path, "j/note")) == b"new"
        await workspace.remove(uri(tmp_path, "j") + "/")
        assert await workspace.list(uri(tmp_path, "j") + "/") == []


async def test_large_objects_are_written_here(
    workspace: LocalWorkspaceApart, tmp_path: Path
) -> None:
    with (
        patch.object(LocalWorkspace, "write", refuse),
        pytest.raises(AssertionError, match="this process"),
    ):
        await workspace.write(uri(tmp_path, "large"), bytes(apart.MOST_BYTES + 1))


async def test_before_the_process_serves_this_one_writes(tmp_path: Path) -> None:
    workspace = LocalWorkspaceApart(tmp_path / "jobs")
    assert await workspace.create(uri(tmp_path, "a"), b"1")
    assert await workspace.read(uri(tmp_path, "a")) == b"1"
    await workspace.close()


async def test_a_view_reaches_no_more_there_than_here(
    workspace: LocalWorkspaceApart, tmp_path: Path
) -> None:
    view = workspace.within(uri(tmp_path, "lucius/a/job_1/"))
    assert await view.create(uri(tmp_path, "lucius/a/job_1/x"), b"")
    for other in ("lucius/a/job_2/x", "lucius/a/job_1/../job_2/x"):
        with pytest.raises(WorkspaceRefusedError):
            await view.create(uri(tmp_path, "") + other, b"")
    (tmp_path / "jobs" / "lucius" / "a" / "job_1" / "way").symlink_to(tmp_path)
    with pytest.raises(WorkspaceRefusedError):
        await view.create(uri(tmp_path, "lucius/a/job_1/way/x"), b"")
    nothing = workspace.within()
    with pytest.raises(WorkspaceRefusedError):
        await nothing.create(uri(tmp_path, "lucius/a/job_1/y"), b"")


async def test_errors_of_the_storage_come_back_as_they_are(
    workspace: LocalWorkspaceApart, tmp_path: Path
) -> None:
    (tmp_path / "out" / "file").write_text("")
    with pytest.raises(WorkspaceError, match="Not a directory") as caught:
        await workspace.create((tmp_path / "out" / "file" / "below").as_uri(), b"")
    assert type(caught.value) is WorkspaceError


async def test_of_two_processes_that_create_the_same_one_wins(
    workspace: LocalWorkspaceApart, tmp_path: Path
) -> None:
    other = LocalWorkspace(tmp_path / "jobs", writable=[tmp_path / "out"])

    async def rivals(name: str) -> None:
        objects = [
            (uri(tmp_path, f"j/_commits/{name}"), b""),
            ((tmp_path / "out" / name).as_uri(), b"x"),
        ]
        created = await asyncio.gather(*(each.create_all(objects) for each in (workspace, other)))
        assert sorted(map(int, map(bool, created))) == [0, 1]

    await asyncio.gather(*(rivals(str(number)) for number in range(100)))
    await other.close()


# -- its end -----------------------------------------------------------------------------------


async def test_what_a_killed_process_was_asked_for_is_done_here(
    workspace: LocalWorkspaceApart, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it had done before, everything is there in the end, and no call fails."""
    pid = workspace.writer.pid
    assert pid is not None

    async def create(number: int) -> None:
        name = uri(tmp_path, f"job_{number}/_commits/a")
        await workspace.create_all([(name, b"r"), (uri(tmp_path, f"job_{number}/o"), b"o")])
        assert await workspace.read(name) == b"r"

    asked = [asyncio.create_task(create(number)) for number in range(200)]
    await asked[0]
    os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*asked)
    records = [each for each in await workspace.list(uri(tmp_path, "")) if "_commits" in each]
    assert len(records) == 200
    assert "it was ended by SIGKILL" in caplog.text


async def test_a_process_that_is_stopped_is_killed_and_nobody_waits_for_ever(
    workspace: LocalWorkspaceApart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SILENT_SECONDS", 0.2)
    pid = workspace.writer.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert await workspace.create(uri(tmp_path, "a"), b"1")
    assert await workspace.read(uri(tmp_path, "a")) == b"1"
    assert workspace.writer.pid is None


async def test_where_there_are_no_more_handles_this_process_writes(tmp_path: Path) -> None:
    workspace = LocalWorkspaceApart(tmp_path / "jobs")
    with patch("socket.socketpair", side_effect=OSError("too many open files")):
        assert await workspace.create(uri(tmp_path, "a"), b"")
    await workspace.close()


async def test_after_a_while_another_process_is_started(
    workspace: LocalWorkspaceApart, tmp_path: Path
) -> None:
    first = workspace.writer.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    while workspace.writer.pid is not None:
        await workspace.write(uri(tmp_path, "a"), b"1")
    await workspace.write(uri(tmp_path, "a"), b"2")
    assert workspace.writer.pid is None, "not at once: what kills it would kill it again"
    workspace.writer._starts_at = 0.0
    await workspace.writer.started()
    assert workspace.writer.pid not in (first, None)
    with patch.object(LocalWorkspace, "write", refuse):
        await workspace.write(uri(tmp_path, "a"), b"3")


async def test_where_no_process_can_be_started_this_one_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = LocalWorkspaceApart(tmp_path / "jobs")
    with patch("subprocess.Popen", side_effect=OSError("no room")):
        for number in range(3):
            assert await workspace.create(uri(tmp_path, str(number)), b"")
    assert caplog.text.count("no room") == 1
    await workspace.close()


async def test_it_ends_what_it_is_at_before_it_is_closed(tmp_path: Path) -> None:
    workspace = LocalWorkspaceApart(tmp_path / "jobs")
    await workspace.writer.started()
    pid = workspace.writer.pid
    asked = [
        asyncio.create_task(workspace.create(uri(tmp_path, f"_commits/{n}"), b""))
        for n in range(50)
    ]
    await asyncio.sleep(0)
    await workspace.close()
    await asyncio.gather(*asked)
    assert len(await workspace.list(uri(tmp_path, ""))) == 50
    with pytest.raises(ProcessLookupError):
        os.kill(pid or 0, 0)
    await workspace.close()


async def test_signals_of_its_group_do_not_end_it(
    workspace: LocalWorkspaceApart, tmp_path: Path
) -> None:
    pid = workspace.writer.pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    with patch.object(LocalWorkspace, "create_all", refuse):
        assert await workspace.create(uri(tmp_path, "a"), b"")


async def test_what_it_logs_is_logged_here(
    workspace: LocalWorkspaceApart, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []
    packets = Packets(print, print)
    with patch.object(packets, "send", sent.append):
        reports = Reports(packets)
        reports.handle(
            logging.makeLogRecord({"name": "lucius.x", "levelno": 40, "msg": "%s is full"})
        )
        await asyncio.sleep(0)
    workspace.writer._received(sent[0])
    assert caplog.record_tuples == [("lucius.x", 40, "%s is full")]


SERVER = """
import asyncio, sys
from pathlib import Path
from lucius.workspaces.apart import LocalWorkspaceApart

async def main():
    workspace = LocalWorkspaceApart(Path(sys.argv[1]))
    await workspace.writer.started()
    print(workspace.writer.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_it_ends_when_whoever_started_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        server.kill()
    assert gone(pid), "it outlives its server"


def gone(pid: int) -> bool:
    """Whether the process has ended, soon."""
    give_up_at = time.monotonic() + 20
    while time.monotonic() < give_up_at:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":  # nobody is there to wait for it
            return True
        time.sleep(0.02)
    return False
