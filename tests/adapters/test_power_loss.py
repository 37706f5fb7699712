"""What a service has answered for is there after kill -9 and after a loss of power, at any moment."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lucius.adapters.workspaces import write_ahead_files
from lucius.adapters.workspaces.files import SYNCS_FILE_SYSTEMS, SyncRound
from lucius.adapters.workspaces.local import LocalWorkspace, path_of
from lucius.adapters.workspaces.write_ahead_files import WriteAheadFiles
from lucius.core.wire import effect_key
from lucius.platform import CommitRecord, Commits, Output
from lucius.platform.commit import folders, record_uri
from lucius.platform.errors import CommittedOutputLostError
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.task import SMALL, Task
from lucius.ports.workspace import Workspace
from tests.adapters.power import ForgetfulDisk, Moment

pytestmark = pytest.mark.skipif(not SYNCS_FILE_SYSTEMS, reason="the disk is watched on Linux")
Failure = Callable[[ForgetfulDisk, Moment], None]
POWER: Failure = ForgetfulDisk.after_power_loss
TORN: Failure = ForgetfulDisk.after_torn_writes
KILL: Failure = ForgetfulDisk.after_kill
FILLING = {"small": "", "large": "." * SMALL}


def opened(folder: Path, boot: str) -> LocalWorkspace:
    return LocalWorkspace(folder / "jobs", writable=[folder / "out"], boot=boot)


def directive(folder: Path, job_id: str, attempt_no: int = 1, output: str = "") -> Directive:
    """`output`: whose file it writes; empty: its own."""
    return parse_directive(
        {
            "jobId": job_id,
            "stepId": "ocr",
            "step_type": "OCR",
            "tenant_id": "a",
            "lease_id": f"l{attempt_no}",
            "attempt_no": attempt_no,
            "lane": 4,
            "workspace_ref": f"{(folder / 'jobs').as_uri()}/lucius/a/{job_id}/",
            "output_ref": f"{(folder / 'out').as_uri()}/{output or job_id}.txt",
            "final_step": True,
            "effect_key": effect_key(job_id, "ocr", "x", {}),
        }
    )


async def served(workspace: Workspace, given: Directive) -> CommitRecord:
    """What the kit does for one attempt, up to its RESULT. Its content differs from all others."""
    own = workspace.within(*folders(given))
    commits = Commits(own)

    async def propose() -> tuple[CommitRecord, int]:
        task = Task(given, {}, own)
        filling = FILLING["large" if given.job_id.endswith("large") else "small"]
        await task.stage("output.txt", f"{given.job_id} by attempt {given.attempt_no}{filling}")
        return await commits.commit(given, "worker", Output(), task.staged)

    return await commits.once(given, propose, lambda: True)


JOBS = ("job_1", "job_2_large", "job_3", "job_4", "job_5", "job_6")


async def story(disk: ForgetfulDisk) -> None:
    """One job by itself, several at once, a sync of the promised files, and one more."""
    folder = disk.folder
    workspace = opened(folder, "first")

    async def answered(job_id: str) -> None:
        disk.answered.append(await served(workspace, directive(folder, job_id)))

    await answered(JOBS[0])
    await asyncio.gather(*map(answered, JOBS[1:4]))
    await workspace._write_ahead_files.settle()
    await asyncio.gather(*map(answered, JOBS[4:]))


async def held(folder: Path, boot: str, moment: Moment) -> None:
    """What was answered stands; every job, tried again, has one effect, in all of its places."""
    workspace = opened(folder, boot)
    workspace.recover()
    winners = {record.job_id: record for record in moment.answered}
    for record in winners.values():
        check_places(record)
    for job_id in JOBS:
        again = directive(folder, job_id, attempt_no=2)
        record = await served(workspace, again)
        assert record == winners.get(job_id, record), "an effect that was answered for has changed"
        check_places(record)
        assert await workspace.read(record_uri(again)) == record.encoded()


def check_places(record: CommitRecord) -> None:
    for promotion, target in record.places():
        found = Path(path_of(target))
        assert found.exists(), f"{target} is gone"
        assert sha256(found.read_bytes()).hexdigest() == promotion.sha256, f"{target} has changed"


async def survives(folder: Path, failure: Failure) -> int:
    disk = ForgetfulDisk(folder)
    os.makedirs(folder / "out")
    disk._sync_all()
    with disk.watching():
        await story(disk)
    assert len(disk.answered) == len(JOBS)
    boot = "first" if failure is KILL else "second"
    for moment in disk.moments:
        failure(disk, moment)
        await held(folder, boot, moment)
    return len(disk.moments)


@pytest.mark.parametrize("failure", [POWER, TORN, KILL], ids=["power", "torn", "kill"])
async def test_nothing_answered_is_lost_whenever_it_fails(tmp_path: Path, failure: Failure) -> None:
    moments = await survives(tmp_path / "disk", failure)
    assert moments > 40, "it fails between any two steps"


def nothing(*args: Any, **options: Any) -> Any:
    return None


@pytest.mark.parametrize(
    "sabotage",
    [
        pytest.param(
            patch.object(WriteAheadFiles, "recover", nothing), id="promises are not made good"
        ),
        pytest.param(
            patch.object(WriteAheadFiles, "_sync", nothing), id="promises are dropped unsynced"
        ),
        pytest.param(patch.object(SyncRound, "sync", nothing), id="large files are not synced"),
    ],
)
async def test_without_a_sync_something_answered_is_lost(
    tmp_path: Path, sabotage: AbstractContextManager[Any]
) -> None:
    lost = r"is gone|has changed|is not what was committed"
    with sabotage, pytest.raises((AssertionError, CommittedOutputLostError), match=lost):
        await survives(tmp_path / "disk", POWER)


async def test_a_note_is_synced_before_it_is_answered_for(tmp_path: Path) -> None:
    workspace = opened(tmp_path, "first")
    await workspace.create((tmp_path / "jobs" / "_commits" / "a").as_uri(), b"x")
    for connection in (workspace._records._writing, workspace._records.opened()):
        assert isinstance(connection, sqlite3.Connection)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_what_others_put_in_the_place_of_a_promised_file_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    await served(opened(tmp_path, "first"), directive(tmp_path, "job_1"))
    taken = tmp_path / "out" / "job_1.txt"
    taken.write_text("what its reader made of it")
    opened(tmp_path, "second").recover()
    assert taken.read_text() == "what its reader made of it"


def damage(file: Path, name: str) -> None:
    """The first page of a table or an index."""
    with closing(sqlite3.connect(file)) as conn:
        query = "SELECT (rootpage - 1) * page_size, page_size FROM sqlite_master, pragma_page_size"
        start, size = conn.execute(f"{query} WHERE name = ?", (name,)).fetchone()
    content = file.read_bytes()
    file.write_bytes(content[:start] + b"\xff" * size + content[start + size :])


@pytest.mark.parametrize("boot", ["first", "second"])
@pytest.mark.parametrize("damaged", ["notes", "promised", "promised_places"])
async def test_a_damaged_page_of_the_promises_stops_no_start(
    tmp_path: Path, damaged: str, boot: str
) -> None:
    (tmp_path / "out").mkdir()
    workspace = opened(tmp_path, "first")
    await served(workspace, directive(tmp_path, "job_1"))
    await workspace._records.close()
    damage(Path(workspace._records.path), damaged)
    workspace = opened(tmp_path, boot)
    workspace.recover()
    workspace.settle_left()
    assert workspace.unrestored() == []


@pytest.mark.parametrize(
    "said", [b"{}", b"\xff", b"[" * 10_000, b"1"], ids=["nothing", "no text", "deep", "a number"]
)
async def test_a_record_that_cannot_be_read_keeps_no_other_output_away(
    tmp_path: Path, said: bytes
) -> None:
    (tmp_path / "out").mkdir()
    workspace = opened(tmp_path, "first")
    for job_id in ("job_1", "job_2"):
        await served(workspace, directive(tmp_path, job_id))
    with closing(workspace._records.opened()) as conn:
        conn.execute("UPDATE notes SET data = ? WHERE key LIKE '%job_1%'", (said,))
    outputs = [tmp_path / "out" / f"{job_id}.txt" for job_id in ("job_1", "job_2")]
    for output in outputs:
        output.unlink()
    outputs[0].mkdir()
    workspace = opened(tmp_path, "second")
    workspace.recover()
    assert outputs[1].is_file()
    assert [each.path for each in workspace.unrestored()] == [str(outputs[0])]


async def test_what_was_removed_does_not_come_back(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    workspace = opened(tmp_path, "first")
    await served(workspace, directive(tmp_path, "job_1"))
    folder = tmp_path / "jobs" / "lucius" / "a" / "job_1"
    await workspace.remove(folder.as_uri() + "/")
    opened(tmp_path, "second").recover()
    assert not folder.exists()
    assert await workspace.list(folder.as_uri() + "/") == []


async def test_an_older_promise_of_a_process_that_lives_is_void_once_the_newer_one_is_settled(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").mkdir()
    await served(opened(tmp_path, "first"), directive(tmp_path, "job_1"))
    place = tmp_path / "out" / "job_1.txt"
    place.unlink()
    workspace = opened(tmp_path, "first")
    await served(workspace, directive(tmp_path, "job_2", output="job_1"))
    await workspace._write_ahead_files.settle()
    place.unlink()  # by its reader
    opened(tmp_path, "second").recover()
    assert not place.exists()


@pytest.mark.parametrize("how", ["create", "write", "replace"])
async def test_what_is_written_without_a_promise_ends_an_older_one_at_its_place(
    tmp_path: Path, how: str
) -> None:
    """It is the beginning of the older one, as a loss of power may leave it."""
    (tmp_path / "out").mkdir()
    await served(opened(tmp_path, "first"), directive(tmp_path, "job_1"))
    place = tmp_path / "out" / "job_1.txt"
    newer = place.read_bytes()[:-1]
    workspace, uri = opened(tmp_path, "first"), place.as_uri()
    if how == "replace":
        expected = await workspace.digest(uri)
        assert expected is not None
        assert await workspace.replace(uri, newer, expected)
    else:
        place.unlink()
        await getattr(workspace, how)(uri, newer)
    opened(tmp_path, "second").recover()
    assert place.read_bytes() == newer


async def test_what_a_killed_process_promised_is_on_disk_before_its_promise_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor has written nothing there itself."""
    folder = tmp_path / "disk"
    disk = ForgetfulDisk(folder)
    os.makedirs(folder / "out")
    disk._sync_all()
    monkeypatch.setattr(write_ahead_files, "ABANDONED_SECONDS", 0.0)
    with disk.watching():
        record = await served(opened(folder, "first"), directive(folder, "job_1"))
        await opened(folder, "first")._write_ahead_files.settle()
    disk.after_power_loss(disk.moments[-1])
    opened(folder, "second").recover()
    check_places(record)


async def test_a_folder_that_cannot_be_opened_keeps_no_other_promise_from_being_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(write_ahead_files, "ABANDONED_SECONDS", 0.0)
    await served(opened(tmp_path, "first"), directive(tmp_path, "job_1"))
    workspace = opened(tmp_path, "first")

    def promised() -> set[str]:
        return {path for (path,) in workspace._records.rows("SELECT path FROM promised")}

    out = str(tmp_path / "out" / "job_1.txt")
    assert out in promised()
    assert len(promised()) > 1
    (tmp_path / "out").rename(tmp_path / "away")
    (tmp_path / "out").symlink_to(tmp_path / "out")  # as one that nobody may enter
    await workspace._write_ahead_files.settle()
    assert promised() == {out}
    (tmp_path / "out").unlink()
    await workspace._write_ahead_files.settle()
    assert promised() == set()
