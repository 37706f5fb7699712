"""The real engine over a ledger in memory, for tests of the HTTP surface: one clock, and no services."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.app.operations import insight, listening
from lucius.core.effects import Committed, Event
from lucius.core.inputs import EntryReleased, Input, PublishConfirmed, Redriven
from lucius.core.job import Job
from lucius.core.plan import StepPlan
from lucius.engine.admission.ingress import Admission, Ingress, IngressPolicy
from lucius.http.app import create_app
from lucius.http.context import ApiContext
from lucius.http.tokens import CallbackTokens
from lucius.operations.why import ProcessState
from lucius.ports.config import Catalog, ConfigSource, JobProtocol
from lucius.ports.engine import Applied, Submitted
from lucius.ports.lanes import ALL_LANES
from lucius.ports.ledger import (
    NO_LIMITS,
    Claim,
    CreateOutcome,
    JobPage,
    JobQuery,
    Limits,
)
from tests.api.conforming import Conforming
from tests.wiring import outbox

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


CATALOG = Catalog({PROTOCOL.request_type: PROTOCOL}, version="7")


class Config:
    pause = timedelta(days=1)

    def __init__(self, catalog: Catalog = CATALOG) -> None:
        self._catalog = catalog

    def catalog(self) -> Catalog:
        return self._catalog

    async def refresh(self) -> bool:
        return False

    def fault(self) -> str | None:
        return None

    async def close(self) -> None:
        """It holds nothing."""


class WatchedLedger(MemoryLedger):
    """`failing` is raised by every call that the API or the engine makes; what is asked is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: Exception | None = None
        self.queries: list[JobQuery] = []
        self.event_reads = 0

    async def create(
        self, claim: Claim, job: Job, events: Sequence[Event], limits: Limits = NO_LIMITS
    ) -> CreateOutcome:
        self._check()
        return await super().create(claim, job, events, limits)

    async def save(self, job: Job, expected: int, events: Sequence[Event]) -> bool:
        self._check()
        return await super().save(job, expected, events)

    async def load(self, job_id: str) -> Job | None:
        self._check()
        return await super().load(job_id)

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        self._check()
        self.event_reads += 1
        return await super().events(job_id, after, limit)

    async def count(self, query: JobQuery) -> int:
        self._check()
        return await super().count(query)

    async def list(self, query: JobQuery) -> JobPage:
        self._check()
        self.queries.append(query)
        return await super().list(query)

    def put(self, job: Job) -> None:
        """The job as it is given, whatever it was before."""
        self.jobs[job.job_id] = self.jobs[job.job_id]._replace(job=job)

    def _check(self) -> None:
        if self.failing is not None:
            raise self.failing


class NumberedIngress(Ingress):
    """Jobs are `job_0`, `job_1` and so on, so that tests can name them."""

    def __init__(
        self, ledger: MemoryLedger, config: ConfigSource, policy: IngressPolicy | None
    ) -> None:
        super().__init__(config, policy)
        self._ledger = ledger
        self._together = 0
        """Jobs that were numbered in this turn, and are not stored yet."""

    def admit(self, envelope: Mapping[str, Any], *, job_id: str, **more: Any) -> Admission:
        return self._counted(super().admit(envelope, job_id=self._next_id(), **more))

    def admit_redrive(self, old: Job, *, job_id: str, **more: Any) -> Admission:
        return self._counted(super().admit_redrive(old, job_id=self._next_id(), **more))

    def _next_id(self) -> str:
        return f"job_{len(self._ledger.jobs) + self._together}"

    def _counted(self, admission: Admission) -> Admission:
        self._together += 1
        asyncio.get_running_loop().call_soon(self._forget)
        return admission

    def _forget(self) -> None:
        self._together = 0


class World:
    """The windows are closed here, so that nothing goes out by itself; `out` releases and publishes."""

    def __init__(
        self,
        catalog: Catalog = CATALOG,
        policy: IngressPolicy | None = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.now = START
        self.ledger = WatchedLedger()
        self.config = Config(catalog)
        activity = self.activity = listening(self.ledger, ALL_LANES, lambda: self.now)
        parts = outbox(
            self.ledger,
            MemoryBus(),
            NumberedIngress(self.ledger, self.config, policy),
            now=lambda: self.now,
            limits=lambda tenant_id: limits,
            listeners=(self._committed, *activity.listeners),
            cache_bytes=0,
            held_back=activity.paused,
            observers=activity.observers,
        )
        self.insight = insight(
            activity,
            self.ledger,
            parts,
            lanes=ALL_LANES,
            catalog=self.config.catalog,
            troubles=dict,
            process=ProcessState(),
            now=lambda: self.now,
        )
        parts.windows.close()
        self.engine = parts.engine
        self._links: set[asyncio.Task[Any]] = set()
        self._commits: set[asyncio.Future[None]] = set()

    @property
    def jobs(self) -> dict[str, Job]:
        return {job_id: record.job for job_id, record in self.ledger.jobs.items()}

    async def submit(self, envelope: Mapping[str, Any]) -> Submitted:
        return await self.engine.submit(envelope)

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        return await self.engine.apply(job_id, received)

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

    async def until(self, holds: Callable[[], bool]) -> None:
        """Look again after each commit."""
        while not holds():
            commit = asyncio.get_running_loop().create_future()
            self._commits.add(commit)
            await commit

    async def linked(self) -> None:
        """Until every job that was redriven names the one that took over."""
        while self._links:
            await asyncio.wait(self._links)

    def _committed(self, made: Committed) -> None:
        for commit in self._commits:
            commit.set_result(None)
        self._commits.clear()
        old = made.job.plan.redrive_of
        if made.before is None and old is not None:  # what the dispatcher would do
            link = asyncio.create_task(self.apply(old, Redriven(made.job.job_id)))
            self._links.add(link)
            link.add_done_callback(self._links.discard)

    async def close(self) -> None:
        """It holds nothing."""


TOKENS = CallbackTokens({"k1": b"0123456789abcdef0123456789abcdef"})


def context_of(world: World, **more: Any) -> ApiContext:
    given: dict[str, Any] = {"registry": CollectorRegistry(), "services": world.insight.services}
    given |= {"failures": world.activity.failures, "redrives": world.insight.redrives}
    given |= {"webhooks": world.insight.published_stats, "refusals": world.activity.refusals}
    given |= {"diagnoser": world.insight.diagnoser, **more}
    return ApiContext(world.engine, world.config, TOKENS, **given)


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document. Making it takes most of a second."""
    return create_app(context_of(World())).openapi()


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
