"""The data directory and what is in it are their owner's alone, with a lax umask and after lax modes."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.app.adapters import open_ledger
from lucius.app.building import build, own_data
from lucius.app.runtime import Runtime
from lucius.app.secrets import SecretKnownError, SecretTooShortError, made_once
from lucius.app.settings import Settings, load_settings
from lucius.app.upkeep import restore_ledger
from lucius.cli.main import main
from tests.api.live import live
from tests.services.stage import packaged

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.fixture(autouse=True)
def lax() -> Iterator[None]:
    """Everything may be read and written by everyone, if nobody says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def settings_of(data: Path, **more: str) -> Settings:
    return load_settings({"LUCIUS_DATA_DIR": str(data), "LUCIUS_PUBLIC_URL": "http://x", **more})


def everything(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def opened(folder: Path) -> list[str]:
    """What others could open, and how."""
    return [
        f"{path.name} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in everything(folder)
        if path.stat().st_mode & OTHERS
    ]


async def worked(data: Path, folder: Path, **more: str) -> None:
    """A job that has read its input and left its output, in a server that is still running."""
    (folder / "in.txt").write_text("some text")
    settings: dict[str, Any] = {"input_roots": str(folder), "output_roots": str(folder), **more}
    async with live(data, services=packaged(), **settings) as world:
        job_id = await world.accepted(
            input_ref=(folder / "in.txt").as_uri(), output_ref=(folder / "out.txt").as_uri()
        )
        job = (await world.client.get(f"/v1/jobs/{job_id}?wait_seconds=30")).json()
        assert job["state"] == "SUCCEEDED", job
        names = {path.name for path in everything(data)}
        assert {"ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.lock"} <= names
        assert opened(data) == []


async def test_everything_in_a_new_data_directory_is_private(tmp_path: Path) -> None:
    data, folder = tmp_path / "above/data", tmp_path / "open"
    folder.mkdir()
    await worked(data, folder)
    assert any(path.is_file() for path in everything(data / "workspace"))
    assert opened(tmp_path / "above") == [], "folders that were made on the way to it are, too"
    mode = stat.S_IMODE((folder / "out.txt").stat().st_mode)
    assert mode == 0o666, "an output where others may enter follows the umask, as any file does"


async def test_workspaces_elsewhere_are_private_too(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "open", tmp_path / "elsewhere"
    folder.mkdir()
    await worked(tmp_path / "data", folder, workspace_url=elsewhere.as_uri())
    assert opened(elsewhere / "lucius") == []
    assert any(path.is_file() for path in everything(elsewhere / "lucius"))


async def test_what_was_left_open_is_closed_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, folder = tmp_path / "data", tmp_path / "open"
    folder.mkdir()
    await worked(data, folder)
    for path in everything(data):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with caplog.at_level(logging.WARNING, "lucius"):
        runtime: Runtime = await build(settings_of(data))
    await runtime.ledger.close()
    for name in ("", "ledger.db", "ledger.db.lock", "callback.key", "webhook.key", "workspace"):
        assert not (data / name).stat().st_mode & OTHERS
        assert f"{data / name} was open to other users" in caplog.text
    caplog.clear()
    own_data(settings_of(data))
    assert caplog.text == ""


def test_what_many_share_stays_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    own_data(settings_of(shared))
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


def test_a_directory_of_others_stays_as_it_is_and_what_is_put_there_is_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`--data /srv`, run by root, must not close /srv."""
    (tmp_path / "theirs.txt").write_text("theirs")
    tmp_path.chmod(0o755)
    own_data(settings_of(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert "a directory of its own" in caplog.text


def test_a_keys_file_that_was_open_stays_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"keys": []}')
    own_data(settings_of(tmp_path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_keys_made_first_of_all_are_in_a_private_directory(tmp_path: Path) -> None:
    words = ["keys", "create", "ci", "--role", "read", "--all-tenants"]
    env = {"LUCIUS_DATA_DIR": str(tmp_path / "data")}
    assert CliRunner().invoke(main, words, env=env).exit_code == 0
    assert CliRunner().invoke(main, ["keys", "webhook", "a"], env=env).exit_code == 0
    assert opened(tmp_path / "data") == []


async def test_a_backup_and_what_is_restored_from_it_are_private(tmp_path: Path) -> None:
    ledger = await open_ledger(settings_of(tmp_path / "one"))
    assert isinstance(ledger, SqliteLedger)
    await ledger.backup(tmp_path / "copy.db")
    await ledger.close()
    assert not (tmp_path / "copy.db").stat().st_mode & OTHERS
    restore_ledger(settings_of(tmp_path / "two"), tmp_path / "copy.db", force=False)
    assert opened(tmp_path / "two") == []


@pytest.mark.parametrize("held", [b"", b"x" * 31])
async def test_a_secret_that_was_cut_is_refused_by_name(tmp_path: Path, held: bytes) -> None:
    for name in ("callback.key", "webhook.key"):
        data = tmp_path / name
        data.mkdir()
        (data / name).write_bytes(held)
        with pytest.raises(SecretTooShortError, match=f"{name} holds {len(held)} bytes"):
            await build(settings_of(data, LUCIUS_STORAGE_BACKEND="memory"))


def test_a_secret_is_made_whole_and_once(tmp_path: Path) -> None:
    first = made_once(tmp_path / "callback.key")
    assert len(first) == 64
    assert made_once(tmp_path / "callback.key") == first
    assert [path.name for path in tmp_path.iterdir()] == ["callback.key"]


@pytest.mark.parametrize(("mode", "taken"), [(0o644, False), (0o640, False), (0o600, True)])
def test_a_secret_that_another_user_has_prepared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, taken: bool
) -> None:
    """In a folder of theirs, say. A volume may show another owner: what is 0600 is private."""
    path = tmp_path / "nats.key"
    path.write_text("k" * 64)
    os.chown(path, os.geteuid() or 4001, -1)
    path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 4002)
    if taken:
        assert made_once(path) == b"k" * 64
    else:
        with pytest.raises(SecretKnownError, match=r"nats\.key belongs to another user"):
            made_once(path)
