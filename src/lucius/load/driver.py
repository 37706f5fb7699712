"""Drives a target by a plan: at a rate, whatever the target does, or with so many jobs at once."""

import asyncio
from typing import Final, Protocol

from lucius.load.plan import LoadPlan
from lucius.load.tally import JobEnd, LoadTally

MOST_AT_ONCE: Final = 2000
"""Jobs under way at a rate. More would measure this machine; the next ones wait, and their time counts."""


class Target(Protocol):
    async def run(self, tenant: str, kind: str) -> JobEnd:
        """One job to its end. `kind` is `works`, or which failure it is meant to have."""


class Driver:
    def __init__(self, target: Target, plan: LoadPlan) -> None:
        self._target = target
        self._plan = plan
        self._begun = 0.0
        self._numbers = 0
        self.tally = LoadTally()

    @property
    def seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._begun

    async def run(self) -> None:
        """Until the plan is done. What is under way then is waited for."""
        self._begun = asyncio.get_running_loop().time()
        if self._plan.rate is not None:
            await self._at(self._plan.rate)
        else:
            await asyncio.gather(
                *(self._one_after_another() for _ in range(self._plan.concurrency))
            )

    def _more(self) -> bool:
        """Takes the next one, if there is one."""
        jobs, seconds = self._plan.jobs, self._plan.seconds
        if (jobs is not None and self._numbers >= jobs) or (
            seconds is not None and self.seconds >= seconds
        ):
            return False
        self._numbers += 1
        return True

    async def _one_after_another(self) -> None:
        while self._more():
            await self._one(self.seconds)

    async def _at(self, rate: float) -> None:
        """Each begins at its time, however late the others are, and is measured from then on."""
        room, running = asyncio.Semaphore(MOST_AT_ONCE), set[asyncio.Task[None]]()

        async def one(due: float) -> None:
            try:
                await self._one(due)
            finally:
                room.release()

        try:
            while self._more():
                due = (self._numbers - 1) / rate
                await asyncio.sleep(max(0.0, due - self.seconds))
                await room.acquire()
                task = asyncio.ensure_future(one(due))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()

    async def _one(self, due: float) -> None:
        tenant, kind = self._plan.tenant(), self._plan.kind()
        self.tally.start()
        self.tally.end(await self._target.run(tenant, kind), self.seconds - due)
