"""Whatever one stored row or file says, the process starts, gets ready and does new work.

A job that cannot be read is in `test_unreadable_row`, an output that cannot be written in `test_reboot`.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lucius.app.runtime import Runtime
from lucius.engine.observer import Incident
from lucius.operations import services
from tests.cli.up import up
from tests.faults.services import Scribe
from tests.observability.served import ended, serving, submitted

SQLITE = {"LUCIUS_STORAGE_BACKEND": "sqlite"}
PAUSED, SEEN, FAILURES = "paused|sis-service", "seen|one", "failures|group"
PLAN, SESSIONS = "redrive|plan_one", "ended sessions|someone"
NOTE = "INSERT OR REPLACE INTO notes VALUES (?, '', ?, 'stamp')"
BROKEN = (
    *(b"{", b"\xff", "", -1, b"null", b"[]", b"{}"),
    b'{"at": 1e300, "services": {"a": 1}, "state": []}',
)


async def left_behind(data: Path) -> None:
    """An earlier process: a job that is out, one that a pause holds, and what it has seen."""
    async with serving(data, (), **SQLITE) as (runtime, client):
        await submitted(client, payload={"n": 0})
        await runtime.activity.paused.pause("ocr", "someone", None)
        await submitted(client, payload={"n": 1})
        await runtime.insight.published_stats.write()


def change(data: Path, sql: str, *rows: tuple[Any, ...]) -> None:
    with closing(sqlite3.connect(data / "ledger.db")) as conn, conn:
        assert conn.executemany(sql, rows).rowcount > 0


async def works(runtime: Runtime, client: Any) -> None:
    await runtime.activity.paused.resume("ocr")
    await ended(client, await submitted(client, payload={"n": 2}))
    failed = {key: count for key, count in runtime.metrics.incidents.cells.items() if count}
    assert Incident.TASK_FAILED.value not in {incident for incident, _ in failed}, failed
    assert (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize("key", [PAUSED, SEEN, FAILURES, PLAN, SESSIONS])
async def test_a_damaged_note_stops_nothing(tmp_path: Path, key: str, content: object) -> None:
    await left_behind(tmp_path)
    change(tmp_path, NOTE, (key, content))
    async with serving(tmp_path, [Scribe("ocr")], **SQLITE) as (runtime, client):
        await works(runtime, client)
        for path in ("/v1/services", "/v1/failures", "/v1/why", "/v1/redrives"):
            assert (await client.get(path)).status_code == 200, path
        await runtime.insight.published_stats.write()
        await runtime.activity.failures.write()
        await runtime.insight.redrives.turn()
        assert not await runtime.insight.redrives.turn(), "a damaged plan has stopped"


async def test_without_the_guard_a_damaged_note_stops_the_start(tmp_path: Path) -> None:
    await left_behind(tmp_path)
    change(tmp_path, NOTE, (PAUSED, b"{}"))

    def unguarded(name: str, note: Any, read: Any, otherwise: Any) -> Any:
        return read(note)

    with patch.object(services, "readable", unguarded), pytest.raises(KeyError):
        async with serving(tmp_path, (), **SQLITE):
            pass


@pytest.mark.parametrize("content", BROKEN)
async def test_a_service_whose_pause_is_damaged_stays_paused_until_it_is_resumed(
    tmp_path: Path, content: object
) -> None:
    await left_behind(tmp_path)
    change(tmp_path, NOTE, (PAUSED, content))
    async with serving(tmp_path, (), **SQLITE) as (runtime, _):
        assert "sis-service" in runtime.activity.paused
        assert await runtime.activity.paused.resume("sis-service")
        assert "sis-service" not in runtime.activity.paused


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE inflight SET count = 'many'",
        "UPDATE inflight SET count = x'00ff'",
        "UPDATE ready SET service = x'00ff'",
        "UPDATE jobs SET due_at = 'soon' WHERE due_at IS NOT NULL",
        "UPDATE jobs SET due_at = 4611686018427387904 WHERE due_at IS NOT NULL",
        "UPDATE jobs SET id = x'00ff' WHERE no = (SELECT max(no) FROM jobs)",
        "DELETE FROM jobs WHERE no = (SELECT max(no) FROM jobs)",
        "UPDATE notes SET key = x'00ff' WHERE key LIKE 'seen%'",
    ],
)
async def test_a_damaged_column_stops_nothing(tmp_path: Path, damage: str) -> None:
    await left_behind(tmp_path)
    change(tmp_path, damage, ())
    async with serving(tmp_path, [Scribe("ocr")], **SQLITE) as (runtime, client):
        await works(runtime, client)


def test_without_room_for_its_socket_the_server_has_its_port(tmp_path: Path) -> None:
    (tmp_path / ".lucius" / "lucius.sock").mkdir(parents=True)
    with up(tmp_path, "--no-services") as server:
        assert "there is no Unix socket beside the port" in server.log()
        assert server.stop() == 0
