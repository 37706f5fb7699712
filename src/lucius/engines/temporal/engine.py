"""The engine of an orchestrator whose jobs run on Temporal: it creates and reads, the invoker moves.

Jobs that began on the outbox engine are moved here, as before: each job stays on the engine it began with.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lucius.core.effects import Event
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.engines.temporal.remote import RemoteInvoker
from lucius.ports.engine import Applied, BacklogRow, Engine, Submitted
from lucius.ports.ledger import JobPage, JobQuery


class TemporalEngine:
    def __init__(self, here: Engine, invoker: RemoteInvoker) -> None:
        self._here = here
        self._invoker = invoker

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        job = await self._here.job(job_id)
        if job is None or not job.plan.on_temporal:
            return await self._here.apply(job_id, received)
        passed_on = await self._invoker.apply(job_id, received)
        after = await self._here.job(job_id)
        if passed_on is None or after is None:
            return None
        return Applied(passed_on.outcome, after, passed_on.code)

    # -- as ever -----------------------------------------------------------------------------

    async def submit(
        self, envelope: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Submitted:
        return await self._here.submit(envelope, idempotency_key=idempotency_key)

    async def redrive(
        self,
        job_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        said: Mapping[str, str] | None = None,
    ) -> Submitted:
        return await self._here.redrive(job_id, payload=payload, said=said)

    async def job(self, job_id: str) -> Job | None:
        return await self._here.job(job_id)

    async def wait(self, job_id: str, version: int, seconds: float) -> Job | None:
        return await self._here.wait(job_id, version, seconds)

    async def ended(self, job_id: str, seconds: float) -> Job | None:
        return await self._here.ended(job_id, seconds)

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        return await self._here.events(job_id, after, limit)

    async def jobs(self, query: JobQuery) -> JobPage:
        return await self._here.jobs(query)

    async def count(self, query: JobQuery) -> int:
        return await self._here.count(query)

    async def backlog(self) -> Sequence[BacklogRow]:
        return await self._here.backlog()

    async def unreadable(self) -> int:
        return await self._here.unreadable()
