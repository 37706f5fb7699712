"""A tiny engine on the real `decide`, for tests of the HTTP surface: jobs in a dict, one clock, no bus."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import httpx
from prometheus_client import CollectorRegistry

from lucius.api.app import create_app
from lucius.api.context import ApiContext
from lucius.api.tokens import CallbackTokens
from lucius.core.decide import decide, submit
from lucius.core.effects import Decision, Event
from lucius.core.errors import RequestError
from lucius.core.idempotency import body_hash, normal_request_type
from lucius.core.inputs import EntryReleased, Input, PublishConfirmed, Redriven
from lucius.core.job import Job
from lucius.core.plan import Carried, Mode, Plan, StepPlan
from lucius.core.routing import choose_mode, route
from lucius.core.states import JobState, StepState
from lucius.ports.config import Catalog, ConfigSource, JobProtocol
from lucius.ports.engine import Applied, Submitted
from lucius.ports.ledger import JobPage, JobQuery, Ledger
from tests.api.conforming import Conforming

START = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)
STEPS = (
    StepPlan("ocr", "OCR", "ocr-service", 0),
    StepPlan("embedding", "EMBEDDING", "embedding-service", 1),
)
PROTOCOL = JobProtocol("ocr_embedding_v1", "OCR->EMBEDDING", STEPS, {"ocr": {"type": "object"}})
ENVELOPE: dict[str, Any] = {
    "tenant_id": "tenant_a",
    "request_type": "OCR->EMBEDDING",
    "input_ref": {"uri": "s3://bucket/in.pdf"},
    "output_ref": {"uri": "s3://bucket/out.json"},
    "payload": {"language": "en"},
    "schema_version": "1",
}


class World:
    """The engine and the readable half of the ledger. `failing` is raised by every call."""

    def __init__(self) -> None:
        self.now = START
        self.jobs: dict[str, Job] = {}
        self.history: dict[str, list[Event]] = {}
        self.claims: dict[str, str] = {}
        self.queries: list[JobQuery] = []
        self.failing: Exception | None = None
        self.event_reads = 0
        self.moved = asyncio.Condition()

    # -- the engine --------------------------------------------------------------------------

    async def submit(
        self, envelope: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Submitted:
        self._check()
        if normal_request_type(str(envelope.get("request_type"))) != PROTOCOL.request_type:
            faults = (("/request_type", "names no protocol"),)
            raise RequestError("UNKNOWN_REQUEST_TYPE", "no protocol", faults=faults)
        claim = idempotency_key or envelope.get("idempotency_key") or body_hash(envelope)
        if claim in self.claims:
            job = self.jobs[self.claims[claim]]
            return Submitted(job.job_id, job.state.value, duplicate=True)
        job_id = f"job_{len(self.jobs)}"
        self.claims[claim] = job_id
        tenant_id = str(envelope["tenant_id"])
        plan = Plan(
            job_id,
            tenant_id,
            PROTOCOL.request_type,
            PROTOCOL.protocol_id,
            str(envelope["schema_version"]),
            envelope["input_ref"],
            envelope["output_ref"],
            envelope["payload"],
            STEPS,
            route(tenant_id, None, choose_mode(None, None, Mode.DEFAULT)),
            accepted_at=self.now,
            workspace_ref=f"file:///workspace/{job_id}/",
            correlation_id=envelope.get("correlation_id"),
            traceparent=envelope.get("traceparent"),
            extra={"overwrite": True} if envelope.get("overwrite") else {},
        )
        return await self._create(plan)

    async def redrive(self, job_id: str, *, payload: Mapping[str, Any] | None = None) -> Submitted:
        old = self.jobs[job_id]
        if old.redriven_by is not None:
            return Submitted(old.redriven_by, "DISPATCHING", duplicate=True)
        if old.state not in (JobState.FAILED_FINAL, JobState.CANCELLED):
            raise RequestError("NOT_REDRIVABLE", "the job has not failed", status=409)
        carried = {
            plan.step_id: Carried(step.result_ref, job_id)
            for plan, step in zip(old.plan.steps, old.steps, strict=True)
            if step.state is StepState.SUCCEEDED
        }
        new_id = f"job_{len(self.jobs)}"
        plan = replace(
            old.plan,
            job_id=new_id,
            redrive_of=job_id,
            carried=carried,
            payload=payload or old.plan.payload,
        )
        await self.apply(job_id, Redriven(new_id))
        return await self._create(plan)

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        self._check()
        job = self.jobs.get(job_id)
        if job is None:
            return None
        decision = decide(job, received, self.now)
        await self._save(decision)
        return Applied(decision.outcome, decision.job, decision.code)

    async def job(self, job_id: str) -> Job | None:
        self._check()
        return self.jobs.get(job_id)

    async def unreadable(self) -> int:
        return 0

    async def wait(self, job_id: str, version: int, seconds: float) -> Job | None:
        return await self._until(job_id, seconds, lambda job: job.version > version or job.terminal)

    async def ended(self, job_id: str, seconds: float) -> Job | None:
        return await self._until(job_id, seconds, lambda job: job.terminal)

    async def _until(
        self, job_id: str, seconds: float, enough: Callable[[Job], bool]
    ) -> Job | None:
        try:
            async with asyncio.timeout(seconds), self.moved:
                await self.moved.wait_for(lambda: enough(self.jobs[job_id]))
        except TimeoutError:
            pass
        return self.jobs[job_id]

    # -- the ledger, as far as the API reads it ------------------------------------------------

    async def list(self, query: JobQuery) -> JobPage:
        self._check()
        self.queries.append(query)
        found = [job for job in reversed(self.jobs.values()) if self._listed(job, query)]
        start = int(query.cursor or 0)
        end = start + query.limit
        return JobPage(found[start:end], str(end) if end < len(found) else None)

    async def count(self, query: JobQuery) -> int:
        return sum(self._listed(job, query) for job in self.jobs.values())

    def _listed(self, job: Job, query: JobQuery) -> bool:
        return (
            (query.tenant_ids is None or job.tenant_id in query.tenant_ids)
            and (query.states is None or job.state in query.states)
            and (not query.dlq or job.in_dlq)
        )

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        self._check()
        self.event_reads += 1
        return [event for event in self.history[job_id] if event.seq > after][:limit]

    # -- moving things along -------------------------------------------------------------------

    async def out(self, job_id: str) -> dict[str, Any]:
        """Release and publish whatever is held; the fields that a reply to it must carry."""
        job = self.jobs[job_id]
        index = job.current_index
        assert index is not None
        step_id, lease_id = job.plan.steps[index].step_id, f"lease_{job.version}"
        await self.apply(job_id, EntryReleased(step_id, lease_id))
        attempt_no = self.jobs[job_id].steps[index].attempt_no
        await self.apply(job_id, PublishConfirmed(step_id, attempt_no, lease_id))
        return {"jobId": job_id, "stepId": step_id, "attempt_no": attempt_no, "lease_id": lease_id}

    def pass_time(self, **by: float) -> None:
        self.now += timedelta(**by)

    async def _create(self, plan: Plan) -> Submitted:
        decision = submit(plan, self.now)
        await self._save(decision)
        return Submitted(plan.job_id, decision.job.state.value, duplicate=False)

    async def _save(self, decision: Decision) -> None:
        async with self.moved:
            self.jobs[decision.job.job_id] = decision.job
            self.history.setdefault(decision.job.job_id, []).extend(decision.events)
            self.moved.notify_all()

    def _check(self) -> None:
        if self.failing is not None:
            raise self.failing


class Config:
    def catalog(self) -> Catalog:
        return Catalog({PROTOCOL.request_type: PROTOCOL}, version="7")

    async def refresh(self) -> bool:
        return False

    def fault(self) -> str | None:
        return None

    async def close(self) -> None:
        """It holds nothing."""


TOKENS = CallbackTokens({"k1": b"0123456789abcdef0123456789abcdef"})


def context_of(world: World, **more: Any) -> ApiContext:
    config: ConfigSource = Config()
    ledger = cast(Ledger, world)
    return ApiContext(world, ledger, config, TOKENS, registry=CollectorRegistry(), **more)


@asynccontextmanager
async def client_of(context: ApiContext) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(context)
    transport = httpx.ASGITransport(app=app)
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [Conforming()]}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://lucius", event_hooks=hooks
    ) as client:
        yield client
        await app.state.feeds.close()


async def accepted(client: httpx.AsyncClient, **changes: Any) -> str:
    answer = await client.post("/v1/orchestrate", json={**ENVELOPE, **changes})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


def bearer(reply: Mapping[str, Any], tenant_id: str = "tenant_a") -> dict[str, str]:
    token = TOKENS.mint(
        tenant_id, reply["jobId"], reply["stepId"], reply["attempt_no"], reply["lease_id"]
    )
    return {"authorization": f"Bearer {token}"}
