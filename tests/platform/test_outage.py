"""When the bus is away or falls silent, and when the service itself must go."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from unittest.mock import patch

import pytest

from lucius.core.errors import BusUnavailableError
from lucius.platform import CommitRecord, Commits, ServiceRunner, runner
from lucius.platform.messages import Directive
from lucius.ports.bus import Delivery
from tests.platform.bench import Bench, Writer, on_the_bench

PROMOTED = "mem://lucius/tenant_a/job_1/ocr/output.txt"


@pytest.mark.slow
@on_the_bench
async def test_a_result_is_sent_when_the_bus_is_back(bench: Bench) -> None:
    await bench.runner(Writer(10))
    await bench.send(1)
    await bench.replies("ACK")
    bench.bus.fail_with(BusUnavailableError("away"))
    await asyncio.sleep(120)
    assert not bench.of("RESULT")
    bench.bus.fail_with(None)
    assert (await bench.result())["status"] == "SUCCEEDED"
    assert bench.loop.time() < 126, "within the longest pause"


@on_the_bench
async def test_an_outage_pauses_the_receiver_and_dead_letters_nothing(bench: Bench) -> None:
    service = await bench.runner(Writer())
    bench.bus.fail_with(BusUnavailableError("away"))
    await asyncio.sleep(300)
    assert service.health().outage == "away"
    bench.bus.fail_with(None)
    await bench.send(1)
    assert (await bench.result())["status"] == "SUCCEEDED"
    assert service.health().outage is None
    assert await bench.dead() == []


@on_the_bench
async def test_a_service_may_start_before_its_bus(bench: Bench) -> None:
    with patch.object(bench.bus, "ensure", side_effect=BusUnavailableError("not yet")):
        await bench.runner(Writer())
        await asyncio.sleep(10)
    await asyncio.sleep(10)
    await bench.send(1)
    assert (await bench.result())["status"] == "SUCCEEDED"


async def _first_receive_hangs(bench: Bench) -> ServiceRunner:
    real, calls = bench.bus.receive, 0

    async def receive(
        name: str, topics: Sequence[str], limit: int, wait: timedelta
    ) -> Sequence[Delivery]:
        nonlocal calls
        calls += 1 if name == "ocr" else 0
        if name == "ocr" and calls == 1:
            await asyncio.sleep(1e9)
        return await real(name, topics, limit, wait)

    with patch.object(bench.bus, "receive", receive):
        service = await bench.runner(Writer())
        await bench.send(1)
        await asyncio.sleep(3600)
    return service


@on_the_bench
async def test_a_receive_that_falls_silent_is_begun_again(bench: Bench) -> None:
    await _first_receive_hangs(bench)
    assert len(bench.of("RESULT")) == 1


@on_the_bench
async def test_without_the_watch_a_silent_receiver_stays_silent(bench: Bench) -> None:
    with patch.object(runner, "SILENCE", timedelta(days=365)):
        service = await _first_receive_hangs(bench)
    assert bench.seen == []
    assert service.health().silent_seconds >= 3600, "but its health shows it"


@on_the_bench
async def test_a_receiver_survives_an_error_that_nobody_foresaw(bench: Bench) -> None:
    with patch.object(bench.bus, "receive", side_effect=RuntimeError("surprise")):
        await bench.runner(Writer())
        await asyncio.sleep(10)
    await bench.send(1)
    assert (await bench.result())["status"] == "SUCCEEDED"


# -- draining ------------------------------------------------------------------------------------


@on_the_bench
async def test_what_ends_within_the_grace_is_finished(bench: Bench) -> None:
    service = await bench.runner(Writer(8), grace=timedelta(seconds=10))
    await bench.send(1)
    await bench.replies("ACK")
    await service.stop()
    assert (await bench.result())["status"] == "SUCCEEDED"
    assert not bench.of("RELEASE")


async def _drained(bench: Bench) -> Writer:
    writer = Writer(600)
    service = await bench.runner(writer, slots=1, grace=timedelta(seconds=10))
    await bench.send(1)
    await bench.replies("ACK")
    await bench.send(1, jobId="job_2")
    await asyncio.sleep(1)
    await service.stop()
    await asyncio.sleep(1)
    return writer


@on_the_bench
async def test_what_takes_longer_than_the_grace_is_given_back(bench: Bench) -> None:
    writer = await _drained(bench)
    (release,) = bench.of("RELEASE")
    assert (release["jobId"], release["lease_id"]) == ("job_1", "lease_1")
    assert not bench.of("RESULT")
    assert writer.finished == []
    assert await bench.waiting() == 1, "what was never received stays on the bus"


@on_the_bench
async def test_without_giving_back_the_lease_is_held_by_nobody(bench: Bench) -> None:
    with patch("lucius.platform.execution.Attempt.release", lambda self, task: task.cancel()):
        await _drained(bench)
    assert not bench.of("RELEASE")
    assert not bench.of("RESULT")


@on_the_bench
async def test_draining_never_gives_back_what_may_be_committed(bench: Bench) -> None:
    class Slow(Commits):
        async def promote(
            self, directive: Directive, record: CommitRecord, filled: int = 0
        ) -> None:
            await asyncio.sleep(3)
            await super().promote(directive, record, filled)

    service = await bench.runner(
        Writer(), grace=timedelta(seconds=1), commits=Slow(bench.workspace)
    )
    await bench.send(1)
    await bench.replies("ACK")
    await service.stop()
    assert (await bench.result())["status"] == "SUCCEEDED"
    assert not bench.of("RELEASE")
    assert bench.workspace.effects(PROMOTED)


@on_the_bench
async def test_draining_gives_an_unacknowledged_directive_back_to_the_bus(bench: Bench) -> None:
    service = await bench.runner(Writer(), grace=timedelta(seconds=1))
    await bench.send(1)
    bench.bus.fail_with(BusUnavailableError("away"), ("publish",))
    await asyncio.sleep(1)
    await service.stop()
    other = Writer()
    bench.bus.fail_with(None)
    await bench.runner(other)
    await asyncio.sleep(1)
    assert other.begun == [1], "another worker has it at once, not when a lock runs out"


@on_the_bench
async def test_a_released_step_runs_again_under_its_next_lease(bench: Bench) -> None:
    await _drained(bench)
    again = Writer()
    await bench.runner(again)
    await bench.send(1, lease_id="lease_1b")
    results = await bench.replies("RESULT", 2)
    assert {(r["jobId"], r["status"]) for r in results} == {
        ("job_1", "SUCCEEDED"),
        ("job_2", "SUCCEEDED"),
    }
