"""What is particular to local files: when they are durable, and what a crash may leave behind."""

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.workspaces import files
from lucius.adapters.workspaces.files import NAMELESS, RECORDS_FILE, TEMPORARY, sync_file_system
from lucius.adapters.workspaces.local import LocalWorkspace
from lucius.adapters.workspaces.records import Records
from lucius.core.errors import WorkspaceError, WorkspaceRefusedError


def _recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order of what reaches the disk: `file`, `name`, `folder`."""
    calls: list[str] = []

    def watch(name: str, called: Callable[..., str]) -> None:
        real = getattr(os, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            calls.append(called(*arguments))
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, watched)

    def synced(handle: int) -> str:
        return "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"

    watch("fsync", synced)
    watch("replace", lambda *_: "name")
    watch("link", lambda *_: "name")
    return calls


async def _begun(root: Path) -> LocalWorkspace:
    """A workspace that has its database, which is made before the first file."""
    workspace = LocalWorkspace(root)
    await workspace.write((root / "first").as_uri(), b"x")
    return workspace


async def test_a_write_is_durable_before_it_is_named_and_named_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = await _begun(tmp_path)
    calls = _recorded(monkeypatch)
    await workspace.write((tmp_path / "a").as_uri(), b"x")
    assert calls == ["file", "name", "folder"]
    calls.clear()
    await workspace.create((tmp_path / "b").as_uri(), b"x")
    assert calls == ["file", "name", "folder"]


async def test_new_folders_are_made_durable_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = await _begun(tmp_path)
    calls = _recorded(monkeypatch)
    await workspace.write((tmp_path / "one" / "two" / "a").as_uri(), b"x")
    assert calls == ["file", "name", "folder", "folder", "folder"]


async def test_a_full_disk_is_reported_and_leaves_the_old_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = LocalWorkspace(tmp_path)
    uri = (tmp_path / "a").as_uri()
    await workspace.write(uri, b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for attempt in (workspace.write(uri, b"new"), workspace.create(uri + "b", b"new")):
        with pytest.raises(WorkspaceError, match="No space left"):
            await attempt
    monkeypatch.undo()
    assert await workspace.read(uri) == b"old"
    assert [name for name in os.listdir(tmp_path) if not name.startswith(RECORDS_FILE)] == ["a"]


async def test_what_a_crash_left_half_written_is_not_an_object(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    (tmp_path / f"{TEMPORARY}abc").write_bytes(b"ha")
    await workspace.write((tmp_path / "a").as_uri(), b"x")
    assert await workspace.list(tmp_path.as_uri() + "/") == [(tmp_path / "a").as_uri()]


async def test_a_readable_place_can_be_read_and_not_written(tmp_path: Path) -> None:
    root, inputs = tmp_path / "root", tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "doc").write_bytes(b"x")
    uri = (inputs / "doc").as_uri()
    workspace = LocalWorkspace(root, readable=[inputs])
    assert await workspace.read(uri) == b"x"
    assert not workspace.writable(uri)
    with pytest.raises(WorkspaceRefusedError):
        await workspace.write(uri, b"y")


async def test_a_link_that_leads_out_is_refused_even_as_a_file(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_bytes(b"x")
    (root / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(WorkspaceRefusedError):
        await LocalWorkspace(root).read((root / "link").as_uri())


async def test_what_has_no_end_is_never_opened() -> None:
    with pytest.raises(WorkspaceRefusedError, match="regular file"):
        await LocalWorkspace(Path("/")).read("file:///dev/zero")


async def test_of_a_link_only_the_link_is_removed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "object").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    workspace = LocalWorkspace(tmp_path)
    await workspace.remove((tmp_path / "link").as_uri() + "/")
    assert sorted(os.listdir(tmp_path)) == ["kept"]
    assert (tmp_path / "kept" / "object").exists()


async def test_a_replaced_object_is_durable_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, uri = LocalWorkspace(tmp_path), (tmp_path / "a").as_uri()
    await workspace.write(uri, b"old")
    old = await workspace.digest(uri)
    assert old is not None
    calls = _recorded(monkeypatch)
    assert await workspace.replace(uri, b"new", old)
    assert calls == ["file", "name", "folder"]


async def test_a_folder_that_was_removed_is_made_again_for_the_next_output(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    for name in ("a", "b"):
        record, output = (tmp_path / "_commits" / name), (tmp_path / "job" / "ocr" / name)
        objects = [(record.as_uri(), b"r"), (output.as_uri(), b"x")]
        assert await workspace.create_all(objects) == 2
        assert output.read_bytes() == b"x"
        shutil.rmtree(tmp_path / "job")


async def test_outputs_in_a_closed_folder_are_closed_as_well(tmp_path: Path) -> None:
    workspace, closed = LocalWorkspace(tmp_path), tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("one", "two"):
        objects = [((tmp_path / "_commits" / name).as_uri(), b"r")]
        objects.append(((closed / "job" / name / "output").as_uri(), b"x"))
        assert await workspace.create_all(objects) == 2
        made = closed / "job" / name
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (made.parent, made, made / "output")]
        assert modes == [0o700, 0o700, 0o600]


async def test_a_known_folder_that_became_a_link_is_looked_at_again(tmp_path: Path) -> None:
    """Inside of the workspace, and in a place that is open for outputs."""
    root, out, secret = tmp_path / "root", tmp_path / "out", tmp_path / "secret"
    for folder in (root / "t/job_1/ocr", out / "mine", secret):
        folder.mkdir(parents=True)
    shared = LocalWorkspace(root, writable=[out], protected=[secret])
    workspace = shared.within((root / "t/job_1").as_uri())
    for folder in (root / "t/job_1/ocr", out / "mine"):
        assert await workspace.create((folder / "before").as_uri(), b"x")
        assert await workspace.digest((folder / "new").as_uri()) is None
        os.rename(folder, folder.with_name("moved"))
        folder.symlink_to(secret)
        with pytest.raises(WorkspaceRefusedError):
            await workspace.create((folder / "new").as_uri(), b"x")
    assert os.listdir(secret) == []


@pytest.mark.parametrize("nameless", [True, False])
async def test_a_promised_file_appears_whole_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    """Also on a file system where a file has a name from the start."""
    monkeypatch.setattr("lucius.adapters.workspaces.files.NAMELESS", nameless and NAMELESS)
    workspace, record = LocalWorkspace(tmp_path), (tmp_path / "_commits" / "r").as_uri()
    assert await workspace.create_all([(record, b"r"), ((tmp_path / "a/b").as_uri(), b"x")]) == 2
    assert os.listdir(tmp_path / "a") == ["b"]
    assert (tmp_path / "a/b").read_bytes() == b"x"


async def test_a_folder_of_notes_that_is_a_link_leads_nowhere(tmp_path: Path) -> None:
    root, job = tmp_path / "root", tmp_path / "root" / "job_1"
    job.mkdir(parents=True)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "a.json").write_bytes(b"x")
    (job / "_commits").symlink_to(tmp_path / "secrets")
    scoped = LocalWorkspace(root).within(job.as_uri() + "/")
    assert await scoped.read((job / "_commits" / "a.json").as_uri()) is None
    assert await scoped.create((job / "_commits" / "b.json").as_uri(), b"note")
    assert os.listdir(tmp_path / "secrets") == ["a.json"]


async def test_notes_are_for_their_owner_alone(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.create((tmp_path / "_commits" / "a").as_uri(), b"x")
    kept = [tmp_path / name for name in os.listdir(tmp_path) if name.startswith(RECORDS_FILE)]
    assert kept
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept)


async def test_files_that_come_together_share_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two turns for a hundred files: one makes them durable, one their names."""
    workspace, syncs = LocalWorkspace(tmp_path), 0

    def counted(handle: int) -> None:
        nonlocal syncs
        syncs += 1
        sync_file_system(handle)

    monkeypatch.setattr(files, "sync_file_system", counted)
    uris = [(tmp_path / "folder" / f"{number}").as_uri() for number in range(100)]
    await asyncio.gather(*(workspace.write(uri, b"x") for uri in uris))
    assert syncs == 2
    assert len(await workspace.list(tmp_path.as_uri() + "/")) == 100


async def test_small_effects_that_come_together_share_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record and its file for each of a hundred jobs: one commit, no other sync, few folders."""
    workspace, commits = LocalWorkspace(tmp_path), 0
    committed = Records._committed

    def counted(records: Records, asked: Any, patience: float) -> bool:
        nonlocal commits
        commits += 1
        return committed(records, asked, patience)

    monkeypatch.setattr(Records, "_committed", counted)
    await workspace.create((tmp_path / "_commits" / "first").as_uri(), b"x")
    calls, made, mkdir = _recorded(monkeypatch), 0, os.mkdir

    def counted_mkdir(*arguments: Any) -> None:
        nonlocal made
        mkdir(*arguments)
        made += 1

    monkeypatch.setattr(os, "mkdir", counted_mkdir)
    jobs = [f"{tmp_path.as_uri()}/t/job_{number}/" for number in range(100)]
    effects = (
        workspace.create_all([(f"{job}_commits/r.json", b"{}"), (f"{job}ocr/a.txt", b"a")])
        for job in jobs
    )
    assert await asyncio.gather(*effects) == [2] * 100
    assert commits == 2, "the first alone, and all others together"
    assert "file" not in calls
    assert "folder" not in calls
    assert made == 1 + 2 * 100, "the tenant's, and for each job its own and its step's"


async def test_small_outputs_may_stay_in_the_database_where_every_workspace_finds_them(
    tmp_path: Path,
) -> None:
    """With their commit record: in one transaction. What leads out of the workspaces is a file."""
    root, out = tmp_path / "root", tmp_path / "out"
    out.mkdir()
    job, mark = (root / "t/job_1").as_uri() + "/", (root / "t/job_1/_redrives/ocr/1.json").as_uri()
    record, inside, outside = f"{job}_commits/r", f"{job}ocr/a%20b.txt", (out / "b").as_uri()
    objects = [(record, b"r"), (inside, b"text"), (outside, b"text")]
    keeping = LocalWorkspace(root, writable=[out], small_as_files=False)
    assert await keeping.create_all(objects, unless=mark) == 3
    again = [(record, b"r"), (inside, b"other"), (outside, b"other")]
    assert await keeping.create_all(again, unless=mark) == 0
    assert not (root / "t").exists(), "neither a file nor a folder was made"
    assert (out / "b").read_bytes() == b"text"
    for workspace in (keeping, keeping.within(job), LocalWorkspace(root).within(job)):
        assert await workspace.read(inside) == b"text"
        assert await workspace.size(inside) == 4
        assert await workspace.digest(inside) == await keeping.digest(outside)
        assert await workspace.list(f"{job}ocr/") == [inside]
        assert await workspace.read(f"{job}ocr/other") is None
    other = LocalWorkspace(root, protected=[root]).within((root / "t/job_2").as_uri())
    with pytest.raises(WorkspaceRefusedError):
        await other.read(inside)
    assert await keeping.folders((root / "t").as_uri() + "/") == [job]
    await keeping.remove(job)
    assert await keeping.read(inside) is None


async def test_a_mark_keeps_small_outputs_from_the_database_too(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, small_as_files=False)
    job = (tmp_path / "t/job_1").as_uri() + "/"
    mark, inside = f"{job}_redrives/ocr/1.json", f"{job}ocr/a.txt"
    assert await workspace.create(mark, b"{}")
    objects = [(f"{job}_commits/r", b"r"), (inside, b"text")]
    assert await workspace.create_all(objects, unless=mark) is None
    assert await workspace.read(inside) is None


@pytest.mark.parametrize("size", [10, 2 * 1024 * 1024])
@pytest.mark.parametrize(
    ("number", "code", "final"),
    [
        (errno.ENOSPC, "DISK_FULL", False),
        (errno.EROFS, "OUTPUT_NOT_WRITABLE", True),
        (errno.EIO, "WORKSPACE_UNAVAILABLE", False),
    ],
)
async def test_an_output_that_cannot_be_written_says_whether_a_later_try_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str, final: bool, size: int
) -> None:
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    workspace = LocalWorkspace(tmp_path / "jobs", writable=[outputs])

    def fails(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fails)
    with pytest.raises(WorkspaceError) as caught:
        await workspace.create((outputs / "a.txt").as_uri(), b"x" * size)
    assert (caught.value.code, isinstance(caught.value, WorkspaceRefusedError)) == (code, final)


async def test_a_file_is_no_folder_of_an_output_and_no_retry_changes_that(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    workspace = LocalWorkspace(tmp_path / "jobs", writable=[tmp_path])
    for look in (workspace.digest, lambda uri: workspace.create(uri, b"x")):
        with pytest.raises(WorkspaceRefusedError) as caught:
            await look((tmp_path / "file" / "a.txt").as_uri())
        assert caught.value.code == "OUTPUT_NOT_WRITABLE"
