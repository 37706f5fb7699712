"""Notices: a worker obeys what LUCIUS says of a lease that it holds, and nothing else."""

import asyncio
from typing import Any

import pytest

from lucius.core.wire import CANCEL, LEASE_ENDED, notice
from lucius.platform import Output, Service, ServiceRunner, Task
from lucius.ports.bus import Message
from tests.platform.bench import Bench, on_the_bench

TOKEN = "k1.bound.mac"
ATTEMPT = ("job_1", "ocr", 1, "lease_1")


class Patient(Service):
    """Works until its job is cancelled, and then says so."""

    name = "ocr"
    step_types = ("OCR",)

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def execute(self, task: Task) -> Output | None:
        self.begun.set()
        await task.until_cancelled()
        task.check_cancelled()
        return None


async def at_work(bench: Bench) -> ServiceRunner:
    service = Patient()
    runner = await bench.runner(service, worker_id="worker-1")
    await bench.send(callback_token=TOKEN)
    await service.begun.wait()
    return runner


async def send_notice(
    bench: Bench, kind: str, attempt: tuple[str, str, int, str], token: str
) -> None:
    made = notice(kind, attempt, ["under an older key", token])
    await bench.bus.send_notice("worker-1", Message(*made))


@on_the_bench
async def test_a_notice_of_a_cancellation_is_heard_at_once(bench: Bench) -> None:
    await at_work(bench)
    before = bench.loop.time()
    await send_notice(bench, CANCEL, ATTEMPT, TOKEN)
    result = await bench.result()
    assert (result["status"], result["error"]["code"]) == ("FAILED_FINAL", "CANCELLED")
    assert bench.loop.time() == before, "no heartbeat was needed"


@on_the_bench
async def test_under_a_lease_that_has_ended_nothing_more_is_said(bench: Bench) -> None:
    runner = await at_work(bench)
    await send_notice(bench, LEASE_ENDED, ATTEMPT, TOKEN)
    await asyncio.sleep(1)
    assert runner.health().running == 0
    assert not bench.of("RESULT")
    assert not bench.of("RELEASE")


def forged() -> list[Any]:
    job, step, number, lease = ATTEMPT
    return [
        pytest.param(ATTEMPT, "k1.bound.another", id="another token"),
        pytest.param(ATTEMPT, "", id="no token"),
        pytest.param(("job_2", step, number, lease), TOKEN, id="another job"),
        pytest.param((job, "sis", number, lease), TOKEN, id="another step"),
        pytest.param((job, step, 2, lease), TOKEN, id="another attempt"),
        pytest.param((job, step, number, "lease_2"), TOKEN, id="another lease"),
    ]


@pytest.mark.parametrize("kind", [CANCEL, LEASE_ENDED])
@pytest.mark.parametrize(("attempt", "token"), forged())
def test_a_notice_that_is_not_for_this_attempt_changes_nothing(
    kind: str, attempt: tuple[str, str, int, str], token: str
) -> None:
    @on_the_bench
    async def story(bench: Bench) -> None:
        runner = await at_work(bench)
        await send_notice(bench, kind, attempt, token)
        await asyncio.sleep(1)
        assert runner.health().running == 1, "it works on"
        await send_notice(bench, CANCEL, ATTEMPT, TOKEN)
        assert (await bench.result())["error"]["code"] == "CANCELLED"

    story()


@pytest.mark.parametrize(
    "body",
    [{}, {"type": CANCEL}, {"type": CANCEL, "proofs": "all"}, {"type": "OTHER", "proofs": [7]}],
)
def test_a_notice_that_is_none_changes_nothing(body: dict[str, Any]) -> None:
    @on_the_bench
    async def story(bench: Bench) -> None:
        runner = await at_work(bench)
        bound = dict(zip(("jobId", "stepId", "attempt_no", "lease_id"), ATTEMPT, strict=True))
        await bench.bus.send_notice("worker-1", Message("n1", {**bound, **body}))
        await asyncio.sleep(1)
        assert runner.health().running == 1, "it works on"

    story()


@on_the_bench
async def test_a_proof_of_one_notice_is_none_of_another(bench: Bench) -> None:
    runner = await at_work(bench)
    named, body, properties = notice(CANCEL, ATTEMPT, [TOKEN])
    await bench.bus.send_notice(
        "worker-1", Message(named, {**body, "type": LEASE_ENDED}, properties)
    )
    await asyncio.sleep(1)
    assert runner.health().running == 1, "it works on"


@on_the_bench
async def test_a_service_works_where_the_bus_has_no_notices(bench: Bench) -> None:
    async def deaf(address: str, wait: object) -> list[Message]:
        raise RuntimeError("the broker is too old for that")

    bench.bus.receive_notices = deaf  # type: ignore[method-assign]
    service = Patient()
    runner = await bench.runner(service, worker_id="worker-1")
    await bench.send()
    await service.begun.wait()
    assert runner.health().outage is None
    runner.request_cancel("job_1")
    assert (await bench.result())["error"]["code"] == "CANCELLED"
