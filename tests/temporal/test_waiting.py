"""A worker waits for its server, and names once what is wrong."""

import asyncio
import logging

import pytest

from lucius.core.errors import WorkflowsUnavailableError
from lucius.engine.temporal import worker
from lucius.engine.temporal.invoker_client import Asking
from lucius.engine.temporal.metrics import TemporalInstruments
from lucius.engine.temporal.worker import keep_working
from lucius.engine.temporal.workflows import TemporalPlace
from tests.virtual import VirtualLoop, run_virtually

PLACE = TemporalPlace("127.0.0.1:1", "nowhere", "queue")


def test_what_is_wrong_is_said_once_however_long_it_lasts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A namespace is missing for a minute; it comes, and the worker runs until the server goes away."""
    runs: list[float] = []

    async def main(loop: VirtualLoop) -> None:
        async def check() -> None:
            if loop.time() < 60:
                raise WorkflowsUnavailableError("there is no namespace nowhere")

        async def run(place: TemporalPlace, invoker: Asking, counted: TemporalInstruments) -> None:
            runs.append(loop.time())
            await asyncio.sleep(10)
            raise RuntimeError("the server is gone")

        monkeypatch.setattr(worker, "run_worker", run)
        invoker: Asking = None  # type: ignore[assignment]
        working = keep_working(PLACE, invoker, TemporalInstruments(), check)
        task = asyncio.create_task(working)
        await asyncio.sleep(75)
        task.cancel()

    with caplog.at_level(logging.WARNING, "lucius.temporal"):
        run_virtually(main)
    assert [round(at) for at in runs] == [60, 71]
    said = [record.getMessage() for record in caplog.records]
    assert [each.rpartition(": ")[2] for each in said] == [
        "there is no namespace nowhere",
        "the server is gone",
    ]
