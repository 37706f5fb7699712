"""What holds up the event loop is named with its service and place: in the log, the metric, `/readyz`."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lucius.app.loop_watch import LoopWatch
from lucius.platform import Output, Service, Task
from tests.observability.served import ended, serving, submitted


class Named(logging.Handler):
    """Set as soon as a block is named, which is while it lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.line = ""
        self.heard = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "ocr holds up" in record.getMessage():
            self.line = record.getMessage()
            self.heard.set()


@pytest.fixture
def named() -> Iterator[Named]:
    handler, log = Named(), logging.getLogger("lucius.loop")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


class Blocking(Service):
    """Waits on the loop until somebody has noticed."""

    name = "ocr"
    step_types = ("OCR",)
    commit = False

    def __init__(self, named: Named) -> None:
        self._named = named

    async def execute(self, task: Task) -> Output:
        assert self._named.heard.wait(30)
        return Output(ref="mem://out")


async def test_a_service_that_blocks_is_named_meanwhile_and_afterwards(
    tmp_path: Path, named: Named
) -> None:
    async with serving(tmp_path, [Blocking(named)]) as (_, client):
        assert (await ended(client, await submitted(client)))["state"] == "SUCCEEDED"
        while "ocr" not in (ready := await client.get("/readyz")).text:
            pass
        scraped = (await client.get("/metrics")).text
    assert named.line.startswith("ocr holds up the event loop, in test_blocked_loop.py:")
    assert "(execute)" in named.line.splitlines()[0]
    assert ready.status_code == 200
    assert ready.json()["warnings"]["event_loop"].startswith("ocr held up the event loop for ")
    assert str(tmp_path) not in ready.text
    assert 'lucius_loop_blocked_seconds_count{service="ocr"}' in scraped


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_process_that_was_suspended_blames_nobody() -> None:
    """The clock jumps between two looks, of the thread as of the loop."""
    clock = Clock()
    watch = LoopWatch(lambda task: "ocr", lambda block: None, lambda: None, clock)
    watch._turned_at, before = clock.now, clock.now
    assert watch._blocked(before + 0.9, before + 1.1), "so much is a block, if it was looked at"
    clock.now += 3600
    assert not watch._blocked(before, clock.now)
    assert not watch._blocked(clock.now, clock.now + 0.25)
