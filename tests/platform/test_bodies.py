"""`execute()` without isolation: plain functions stay off the loop, and what ends a process ends a step."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable

import pytest

from lucius.platform import Output, Service, SyncTask, Task
from lucius.platform.bodies import TURN_SECONDS
from tests.platform.bench import Bench, Writer, on_the_bench
from tests.platform.isolated import Threaded

OUTPUT = "mem://lucius/tenant_a/job_1/ocr/output.txt"


async def test_a_plain_function_runs_in_a_thread(bench: Bench) -> None:
    service = Threaded()
    await bench.runner(service)
    await bench.send(1)
    assert (await bench.result())["status"] == "SUCCEEDED"
    assert bench.workspace.objects[OUTPUT] == b"some text"
    assert service.threads == ["execute ocr"]


async def test_more_plain_functions_run_at_once_than_the_workspace_has_threads(
    bench: Bench,
) -> None:
    """They do not share a pool with what reads and writes files, and so cannot keep it waiting."""
    service = Threaded()
    await bench.runner(service, slots=48)
    for number in range(1, 49):
        await bench.send(number, jobId=f"job_{number}", payload={"deed": "wait"})
    await bench.replies("ACK", 48)
    await asyncio.to_thread(service.let_go.set)
    assert {result["status"] for result in await bench.replies("RESULT", 48)} == {"SUCCEEDED"}


@pytest.mark.parametrize("deed", ["sys.exit", "interrupt"])
async def test_a_thread_that_exits_fails_its_step(bench: Bench, deed: str) -> None:
    await bench.runner(Threaded())
    await bench.send(1, payload={"deed": deed})
    result = await bench.result()
    assert (result["status"], result["error"]["code"]) == ("FAILED_RETRY", "EXIT_CALLED")


async def test_a_thread_that_is_given_up_stages_nothing_more(bench: Bench) -> None:
    service = Threaded()
    runner = await bench.runner(service)
    await bench.send(1, payload={"deed": "wait"})
    assert await asyncio.to_thread(service.begun.wait, 60)
    ((task, execution),) = runner._running.items()
    execution.release(task)
    await bench.replies("RELEASE")
    service.let_go.set()
    assert await asyncio.to_thread(service.refused.wait, 60)
    assert not [uri for uri in bench.workspace.objects if "output" in uri]


class Raising(Service):
    name = "ocr"
    step_types = ("OCR",)

    def __init__(self, raises: Callable[[], BaseException]) -> None:
        self._raises = raises

    async def execute(self, task: Task) -> Output:
        await asyncio.sleep(0)
        raise self._raises()


class StrangeError(BaseException):
    """Nobody foresaw it."""


@pytest.mark.parametrize("raises", [lambda: SystemExit(3), KeyboardInterrupt, StrangeError])
def test_what_would_end_the_process_ends_the_step(
    raises: Callable[[], BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the signal is handled, as `lucius up` does, an interrupt can only come from the service."""
    monkeypatch.setattr(signal, "getsignal", lambda number: lambda *_: None)

    @on_the_bench
    async def story(bench: Bench) -> None:
        await bench.runner(Raising(raises))
        await bench.send(1)
        result = await bench.result()
        assert (result["status"], result["error"]["code"]) == ("FAILED_RETRY", "EXIT_CALLED")
        await bench.runner(Writer())
        await bench.send(2)
        await bench.replies("RESULT", 2)

    story()


def test_a_real_interrupt_still_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under asyncio's own handling of Ctrl-C, or none, it is not taken for the service's failure."""
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.default_int_handler)

    @on_the_bench
    async def story(bench: Bench) -> None:
        await bench.runner(Raising(KeyboardInterrupt))
        await bench.send(1)
        await bench.result()

    with pytest.raises(KeyboardInterrupt):
        story()


class Computing(Service):
    """Computes without a pause until it is told to stop."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self) -> None:
        self.enough = threading.Event()

    def execute(self, task: SyncTask) -> Output:
        while not self.enough.is_set():
            sum(range(10_000))
        task.stage("output.txt", "done")
        return Output()


async def test_threads_that_compute_let_the_loop_have_its_turn_soon(bench: Bench) -> None:
    python = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        await bench.runner(Threaded())
        assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
    finally:
        sys.setswitchinterval(python)


async def test_heartbeats_go_on_while_plain_code_computes(bench: Bench) -> None:
    service = Computing()
    await bench.runner(service)
    await bench.send(1, lease_seconds=1.5)
    await bench.replies("HEARTBEAT", 3)
    assert not bench.of("RESULT"), "it is still at it"
    service.enough.set()
    await bench.result()
