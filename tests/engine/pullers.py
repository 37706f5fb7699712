"""Workers that pull, in virtual time: bound to tenants, quick, slow, or silent."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lucius.adapters.configs.files import FileConfig
from lucius.core.inputs import AckReceived, ResultReceived, ResultStatus
from lucius.engine.gateway import BusGateway
from tests.engine.world import World
from tests.wiring import gateway_on


async def never() -> None:
    await asyncio.Event().wait()


def gateway_of(world: World, *, apart: bool = False) -> BusGateway:
    """`apart`: as in a process that owns no lane, where the gateway can tell the windows nothing."""
    backlog = None if apart else world.outbox.pulls
    return gateway_on(world.bus, FileConfig(), backlog)


@dataclass
class Puller:
    """Pulls, acknowledges, works for so long, answers, and begins again."""

    world: World
    gateway: BusGateway
    tenants: frozenset[str] | None = None
    room: int = 1
    seconds: float = 0.0
    wait: float = 30.0
    late: float = 0.0
    """Seconds from the pull to the ACKs."""
    batches: list[int] = field(default_factory=list)
    done: int = 0

    async def run(self) -> None:
        while True:
            await self.once()

    async def once(self) -> None:
        pulled = self.gateway.pull("ocr", self.room, self.wait, self.tenants, never)
        directives = await pulled
        self.batches.append(len(directives))
        await asyncio.sleep(self.late)
        for directive in directives:
            await self._say(directive, AckReceived)
        await asyncio.sleep(self.seconds)
        for directive in directives:
            await self._say(directive, ResultReceived, ResultStatus.SUCCEEDED, "mem://out")
            self.done += 1

    async def _say(self, directive: Mapping[str, Any], kind: type[Any], *rest: Any) -> None:
        bound = (directive["stepId"], directive["attempt_no"], directive["lease_id"])
        await self.world.engine.apply(directive["jobId"], kind(*bound, *rest))


class Crowd:
    """Pullers at work until the end of the scene."""

    def __init__(self, *pullers: Puller) -> None:
        self._pullers = pullers

    async def __aenter__(self) -> None:
        self._tasks = [asyncio.create_task(puller.run()) for puller in self._pullers]

    async def __aexit__(self, *failure: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def submit(world: World, tenant_id: str, count: int) -> list[str]:
    fields: dict[str, Any] = {"request_type": "OCR", "payload": {}}
    return [await world.submit(tenant_id=tenant_id, number=n, **fields) for n in range(count)]


async def attempts_used(world: World, job_ids: list[str]) -> int:
    jobs = [await world.engine.job(job_id) for job_id in job_ids]
    return sum(step.used for job in jobs if job is not None for step in job.steps)
