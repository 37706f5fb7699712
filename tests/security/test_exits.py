"""`sys.exit()` in a task that a service has started ends that task, not the server."""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import cast

import pytest
import uvloop

from lucius.app.lifecycle import run_to_its_end
from lucius.platform import Output, Service, Task
from tests.platform.bench import Bench
from tests.virtual import VirtualLoop

Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


async def leave() -> None:
    sys.exit(3)


class Delegating(Service):
    """Has a task of its own leave, and waits for it or does not."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self, waits: bool) -> None:
        self._waits = waits
        self.left: asyncio.Task[None] | None = None

    async def execute(self, task: Task) -> Output:
        self.left = asyncio.create_task(leave())
        if self._waits:
            await self.left
        await asyncio.wait([self.left])
        await task.stage("output.txt", "done")
        return Output()


@LOOPS
@pytest.mark.parametrize("waits", [True, False])
def test_the_server_goes_on_and_the_step_fails_if_it_waited_for_the_task(
    loop: Loop, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    results = []

    async def story() -> None:
        bench, service = Bench(cast(VirtualLoop, None)), Delegating(waits)
        await bench.open()
        await bench.runner(service)
        await bench.send(1)
        results.append(await bench.result())
        assert service.left is not None
        assert isinstance(service.left.exception(), SystemExit)
        await bench.send(2)
        results.extend((await bench.replies("RESULT", 2))[1:])
        await bench.close()

    with caplog.at_level(logging.ERROR):
        run_to_its_end(story(), loop)
    codes = [result.get("error", {}).get("code") for result in results]
    assert codes == ["EXIT_CALLED" if waits else None] * 2
    assert "in leave" in caplog.text


@LOOPS
def test_a_callback_that_leaves_ends_nothing_either(loop: Loop) -> None:
    ended = []

    async def story() -> None:
        running = asyncio.get_running_loop()
        later = running.create_future()
        running.call_soon(sys.exit, 3)
        running.call_soon(later.set_result, None)
        await later
        ended.append("in order")

    run_to_its_end(story(), loop)
    assert ended == ["in order"]


@LOOPS
def test_what_the_process_itself_raises_ends_it(loop: Loop) -> None:
    with pytest.raises(SystemExit, match="3"):
        run_to_its_end(leave(), loop)
