"""Sampled stacks are added up under the component that was at work."""

import sys
from pathlib import Path

import pytest

from bench.components import COMPONENTS, LOOP, OTHER, profile
from bench.sampling import NotSampledError, sample

SOURCES = Path(__file__).parents[2] / "src"
ON_LOOP = "<module> (lucius:8);run (uvloop/__init__.py:92);Runner.run (asyncio/runners.py:118)"
IN_WRITER = (
    "Thread._bootstrap (threading.py:1002);Writer._run (lucius/ledgers/sqlite/writer.py:104)"
)
COMMIT = f"{IN_WRITER};Writer._together (lucius/ledgers/sqlite/writer.py:145)"
BATCH = f"{COMMIT};Batch.run (lucius/ledgers/sqlite/batch.py:114)"
SAVE = f"{ON_LOOP};EngineLoop._save (lucius/engines/outbox/loop.py:166)"
SETTLE = f"{ON_LOOP};ReplyGroup.open (lucius/engines/outbox/replies.py:150)"


@pytest.mark.parametrize(
    ("stack", "component"),
    [
        (f"{ON_LOOP}", LOOP),
        (f"{ON_LOOP};RequestResponseCycle.send (uvicorn/protocols/h.py:5)", "HTTP protocol"),
        (f"{ON_LOOP};job_view (lucius/api/views.py:64)", "API routes and views"),
        (f"{SAVE}", "engine around a decision"),
        (f"{SAVE};decide (lucius/core/decide.py:63)", "deciding"),
        (f"{SETTLE};parse_reply (lucius/core/wire.py:147)", "reading replies"),
        (f"{COMMIT}", "writer: commit and fsync"),
        (f"{BATCH}", "writer: staging rows"),
        (f"{BATCH};Rows.run (lucius/ledgers/sqlite/rows.py:29)", "writer: SQLite statements"),
        (f"{BATCH};Rows._portions (lucius/ledgers/sqlite/rows.py:40)", "writer: staging rows"),
    ],
)
def test_a_sample_belongs_to_the_innermost_frame_that_is_known(stack: str, component: str) -> None:
    assert profile([f"{stack} 7"]).counts == {component: 7}


@pytest.mark.parametrize(
    ("caller", "component"),
    [
        (
            f"{SAVE};Save.__init__ (lucius/ledgers/sqlite/batch.py:46)",
            "encoding and queueing saves",
        ),
        (f"{ON_LOOP};load (lucius/ledgers/sqlite/queries.py:20)", "reading the ledger"),
        (f"{SETTLE};ReplyTokens.guard (lucius/bootstrap/reply_tokens.py:32)", "reading replies"),
    ],
)
def test_what_several_components_use_counts_for_its_caller(caller: str, component: str) -> None:
    shared = (
        "_step (lucius/ledgers/stored/job_codec.py:74);copier (<string>:2);b64decode (base64.py:83)"
    )
    assert profile([f"{caller};{shared} 3"]).counts == {component: 3}


def test_a_thread_that_waits_takes_no_share() -> None:
    found = profile(
        [
            f"{IN_WRITER};Writer._take (lucius/ledgers/sqlite/writer.py:117) 60",
            "Thread.run (threading.py:982);_worker (concurrent/futures/thread.py:81) 30",
            f"{COMMIT} 1",
            f"{SAVE} 3",
        ]
    )
    assert found.waiting == 90
    assert found.rows(cpu_ms_per_job=2.0) == [
        {"component": "engine around a decision", "share": 0.75, "cpu_us_per_job": 1500.0},
        {"component": "writer: commit and fsync", "share": 0.25, "cpu_us_per_job": 500.0},
    ]


def test_what_nobody_has_listed_is_seen_as_other_with_its_file() -> None:
    found = profile(
        [
            f"{SAVE};shortcut (lucius/core/shortcut.py:5);copier (<string>:2) 2",
            "Thread.run (threading.py:982);pump (somewhere/else.py:81) 3",
        ]
    )
    assert found.counts == {OTHER: 5}
    assert found.unknown == {"lucius/core/shortcut.py": 2, "somewhere/else.py": 3}


def test_every_file_that_the_table_names_is_there() -> None:
    named = {start.partition(":")[0] for starts in COMPONENTS.values() for start in starts}
    ours = [start for start in named if start.startswith("lucius/")]
    assert [start for start in ours if not list(SOURCES.glob(f"{start}*"))] == []


async def test_without_a_profile_one_line_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(NotSampledError, match="py-spy is not installed"):
        await sample(1, 1, tmp_path / "stacks")
    refusing = tmp_path / "py-spy"
    refusing.write_text("#!/bin/sh\necho 'Permission denied' >&2; echo more >&2; exit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(NotSampledError, match=r"^Permission denied$"):
        await sample(1, 1, tmp_path / "stacks")
