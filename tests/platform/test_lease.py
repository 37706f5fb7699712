"""While a step runs: heartbeats, time limits, cancelling."""

import asyncio
from datetime import timedelta

import pytest

from lucius.core.errors import BusUnavailableError
from lucius.platform import BusReplies, Output, ReplyAnswer, Service, StepCancelledError, Task
from lucius.platform.messages import Directive
from lucius.ports.bus import Message
from tests.platform.bench import Bench, Writer, on_the_bench


@on_the_bench
async def test_heartbeats_come_three_times_a_lease_each_with_its_own_id(bench: Bench) -> None:
    await bench.runner(Writer(35))
    await bench.send(1, lease_seconds=30.0)
    await bench.result()
    beats = [m.message_id for m in bench.messages if m.properties["type"] == "HEARTBEAT"]
    assert beats == [f"job_1:ocr:1:lease_1:HEARTBEAT:{n}" for n in (1, 2, 3)]


@on_the_bench
async def test_each_lease_has_heartbeats_of_its_own_pace(bench: Bench) -> None:
    """One timer serves them all: neither the longest lease nor the shortest sets the pace of others."""
    await bench.runner(Writer(65, 65))
    await bench.send(1, lease_seconds=90.0)
    await bench.send(2, lease_seconds=30.0)
    await bench.replies("RESULT", 2)
    beats = [each["attempt_no"] for each in bench.of("HEARTBEAT")]
    assert (beats.count(1), beats.count(2)) == (2, 6)


@on_the_bench
async def test_a_short_outage_does_not_cost_the_lease(bench: Bench) -> None:
    await bench.runner(Writer(100))
    await bench.send(1, lease_seconds=30.0)
    await bench.replies("HEARTBEAT")
    bench.bus.fail_with(BusUnavailableError("away"))
    await asyncio.sleep(20)
    bench.bus.fail_with(None)
    assert (await bench.result())["status"] == "SUCCEEDED"


@on_the_bench
async def test_heartbeats_end_with_the_work(bench: Bench) -> None:
    await bench.runner(Writer(35))
    await bench.send(1, lease_seconds=30.0)
    await bench.result()
    count = len(bench.of("HEARTBEAT"))
    await asyncio.sleep(600)
    assert len(bench.of("HEARTBEAT")) == count


class Cancelling(BusReplies):
    """A way back: the answer to every heartbeat is that the job is being cancelled."""

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        await super().send(directive, message)
        return ReplyAnswer(cancel_requested=message.properties["type"] == "HEARTBEAT")


class Patient(Service):
    """Works in pieces of a second and looks up between them."""

    name = "ocr"
    step_types = ("OCR",)
    commit = False

    async def execute(self, task: Task) -> Output | None:
        for _ in range(100):
            task.check_cancelled()
            await asyncio.sleep(1)
        return None


@on_the_bench
async def test_the_answer_to_a_heartbeat_tells_the_service_to_stop(bench: Bench) -> None:
    await bench.runner(Patient(), replies=Cancelling(bench.bus))
    await bench.send(1, lease_seconds=30.0)
    result = await bench.result()
    assert (result["status"], result["error"]["code"]) == ("FAILED_FINAL", "CANCELLED")
    assert 10 <= bench.loop.time() <= 12


@on_the_bench
async def test_without_an_answer_the_service_works_to_its_end(bench: Bench) -> None:
    await bench.runner(Patient())
    await bench.send(1, lease_seconds=30.0)
    assert (await bench.result())["status"] == "SUCCEEDED"
    assert bench.loop.time() >= 100


@on_the_bench
async def test_an_embedding_process_can_pass_on_a_cancel(bench: Bench) -> None:
    class Waiting(Patient):
        async def execute(self, task: Task) -> Output | None:
            assert not task.cancel_requested
            await task.until_cancelled()
            with pytest.raises(StepCancelledError):
                task.check_cancelled()
            return None

    runner = await bench.runner(Waiting(), slots=2)
    await bench.send(1, jobId="job_1")
    await bench.send(1, jobId="job_2")
    await bench.replies("ACK", 2)
    await asyncio.sleep(1)
    runner.request_cancel("job_2")
    assert (await bench.result())["jobId"] == "job_2"
    runner.request_cancel("job_1")
    await bench.result(2)


@on_the_bench
async def test_a_step_beyond_its_time_limit_is_stopped_and_retried(bench: Bench) -> None:
    class Limited(Writer):
        time_limit = timedelta(seconds=5)

    writer = Limited(60)
    await bench.runner(writer)
    await bench.send(1)
    result = await bench.result()
    assert (result["status"], result["error"]["code"]) == ("FAILED_RETRY", "TIME_LIMIT")
    assert writer.finished == []
    assert bench.loop.time() < 6


@on_the_bench
async def test_a_service_that_cancels_itself_is_answered_for(bench: Bench) -> None:
    class Odd(Patient):
        async def execute(self, task: Task) -> Output | None:
            raise asyncio.CancelledError

    await bench.runner(Odd())
    await bench.send(1)
    assert (await bench.result())["error"]["code"] == "CANCELLED_ITSELF"


# -- a lease that the orchestrator has ended ---------------------------------------------------


class Stubborn(Service):
    """Works on, whatever it is told, and stages its output at the end."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def execute(self, task: Task) -> Output | None:
        self.begun.set()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(10)
        await task.stage("output.txt", "late")
        self.ended.set()
        return None


@on_the_bench
async def test_an_ended_lease_ends_the_work_at_once_and_frees_its_slot(bench: Bench) -> None:
    writer = Writer(3600)
    runner = await bench.runner(writer, slots=1)
    await bench.send(1)
    await bench.replies("ACK")
    runner.end_lease("lease_of_another")
    runner.end_lease("lease_1")
    await bench.send(2)
    result = await bench.result()
    assert (result["attempt_no"], writer.finished) == (2, [2])
    assert [body["attempt_no"] for body in bench.of("RESULT")] == [2]
    assert not bench.of("RELEASE")


@on_the_bench
async def test_nothing_is_committed_under_a_lease_that_was_ended(bench: Bench) -> None:
    service = Stubborn()
    runner = await bench.runner(service)
    await bench.send(1)
    await service.begun.wait()
    runner.end_lease("lease_1")
    await service.ended.wait()
    assert (await bench.result())["error"]["code"] == "LEASE_EXPIRED"
    assert not [uri for uri in bench.workspace.objects if "/_commits/" in uri]
