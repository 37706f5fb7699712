"""A process that ends in order leaves no step at work: the next one has no death to count."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.app.services import ServiceHost
from lucius.core.job import AbortReason, StepState
from lucius.platform import Output, Service, Task
from tests.observability.served import serving, submitted


class Endless(Service):
    name = "ocr"
    step_types = ("OCR",)
    commit = False

    def __init__(self) -> None:
        self.at_work = asyncio.Event()

    async def execute(self, task: Task) -> Output:
        self.at_work.set()
        await asyncio.Event().wait()
        raise AssertionError("nothing ends it")


def slow_saves() -> Any:
    """As on a disk: whoever does not wait for a save may not get it."""
    save = MemoryLedger.save

    async def slow(self: MemoryLedger, *given: Any) -> bool:
        await asyncio.sleep(0.1)
        return await save(self, *given)

    return patch.object(MemoryLedger, "save", slow)


async def test_the_end_of_a_process_settles_the_leases_that_its_services_give_back(
    tmp_path: Path,
) -> None:
    service = Endless()
    with slow_saves():
        async with serving(tmp_path, [service]) as (runtime, client):
            job_id = await submitted(client)
            await service.at_work.wait()
            assert isinstance(runtime.own, ServiceHost)
            for runner in runtime.own.runners:
                runner._grace = 0.0
    job = await runtime.ledger.load(job_id)
    assert job is not None
    step = job.steps[0]
    assert step.state is not StepState.IN_PROGRESS
    assert step.executions[0].reason is AbortReason.RETURNED
    assert (step.returns, step.deaths) == (1, 0)
