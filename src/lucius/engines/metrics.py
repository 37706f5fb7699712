"""What the engine does, counted: one listener on committed decisions, and gauges read at a scrape."""

from collections.abc import Iterator
from typing import Final, TypedDict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lucius.core.effects import Decision, Event
from lucius.core.inputs import Kind
from lucius.core.job import Execution, Job, Step
from lucius.core.states import AbortReason, StepState
from lucius.engines.outbox import OutboxEngine
from lucius.ports.ledger import JobQuery

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
TRACKS: Final = {
    AbortReason.PUBLISH_REFUSED: "publish",
    AbortReason.ACK_TIMEOUT: "ack",
    AbortReason.LEASE_EXPIRED: "execution",
    AbortReason.RESULT_FAILED: "execution",
}


class BacklogRow(TypedDict):
    """What waits and runs for one service on one lane; autoscaling follows the sum of the first three."""

    service: str
    lane: int
    held: int
    released: int
    in_progress: int
    window: int


class EngineMetrics:
    """Register `listen` with the engine; call `refresh` before each scrape."""

    def __init__(self, engine: OutboxEngine, registry: CollectorRegistry) -> None:
        self._engine = engine
        self._running: dict[tuple[str, int], int] = {}
        self.accepted = Counter(
            "lucius_jobs_accepted", "Jobs accepted", ["request_type"], registry=registry
        )
        self.ended = Counter(
            "lucius_jobs_ended", "Jobs ended", ["request_type", "state"], registry=registry
        )
        self.job_seconds = Histogram(
            "lucius_job_seconds",
            "From acceptance to the end of a job",
            ["request_type"],
            buckets=SECONDS,
            registry=registry,
        )
        self.step_seconds = Histogram(
            "lucius_step_seconds",
            "From the ACK to the end of an attempt",
            ["step_type"],
            buckets=SECONDS,
            registry=registry,
        )
        self.dispatch_lag = Histogram(
            "lucius_dispatch_lag_seconds",
            "From the wish for a directive to its ACK",
            ["service"],
            buckets=SECONDS,
            registry=registry,
        )
        self.attempts_failed = Counter(
            "lucius_attempts_failed",
            "Attempts that ended without success, by reason",
            ["service", "reason"],
            registry=registry,
        )
        self.retries = Counter(
            "lucius_retries",
            "Steps that wait for another try, by track",
            ["track"],
            registry=registry,
        )
        self.callbacks_noted = Counter(
            "lucius_callbacks_noted",
            "Callbacks recorded and not applied: late, stale or duplicate",
            ["outcome"],
            registry=registry,
        )
        self.ticks = Counter(
            "lucius_sweeper_actions", "Moves that time alone caused", ["move"], registry=registry
        )
        self.escalations = Counter(
            "lucius_escalations", "Jobs and pauses beyond their SLA", ["sla"], registry=registry
        )
        self.backlog = Gauge(
            "lucius_backlog",
            "Directives held, released and in progress",
            ["service", "lane", "stage"],
            registry=registry,
        )
        self.window = Gauge(
            "lucius_window", "Size of the dispatch window", ["service", "lane"], registry=registry
        )
        self.inflight = Gauge("lucius_inflight", "Live jobs", ["tenant_id"], registry=registry)
        self.dlq = Gauge(
            "lucius_dlq", "Jobs in the dead-letter view (counted to 1,000)", registry=registry
        )

    # -- the listener ------------------------------------------------------------------------

    def listen(self, before: Job | None, decision: Decision) -> None:
        job = decision.job
        request_type = job.plan.request_type
        if before is None:
            self.accepted.labels(request_type).inc()
        for index, step in enumerate(job.steps):
            earlier = before.steps[index] if before is not None else None
            if step is not earlier:
                self._step(job, index, earlier, step)
        if job.terminal and not (before is not None and before.terminal):
            self.ended.labels(request_type, job.state.value).inc()
            seconds = (job.updated_at - job.plan.accepted_at).total_seconds()
            self.job_seconds.labels(request_type).observe(seconds)
        for event in decision.events:
            self._event(event)

    def _step(self, job: Job, index: int, earlier: Step | None, step: Step) -> None:
        planned = job.plan.steps[index]
        self._count_running(planned.service, job.plan.routing.lane, earlier, step)
        for execution, was in _changed(earlier, step):
            if execution.started_at is not None and (was is None or was.started_at is None):
                self._acknowledged(planned.service, step, execution)
            if execution.finished_at is not None and (was is None or was.finished_at is None):
                self._finished(planned.service, planned.step_type, step, execution)

    def _acknowledged(self, service: str, step: Step, execution: Execution) -> None:
        if step.entry is not None and execution.started_at is not None:
            lag = (execution.started_at - step.entry.created_at).total_seconds()
            self.dispatch_lag.labels(service).observe(lag)

    def _finished(self, service: str, step_type: str, step: Step, execution: Execution) -> None:
        if execution.started_at is not None and execution.finished_at is not None:
            seconds = (execution.finished_at - execution.started_at).total_seconds()
            self.step_seconds.labels(step_type).observe(seconds)
        reason = execution.reason
        if reason is None:
            return
        self.attempts_failed.labels(service, reason.value).inc()
        waits = step.state is StepState.FAILED_RETRY or step.held
        if waits and reason in TRACKS:
            self.retries.labels(TRACKS[reason]).inc()

    def _count_running(self, service: str, lane: int, earlier: Step | None, step: Step) -> None:
        was = earlier is not None and earlier.state is StepState.IN_PROGRESS
        change = (step.state is StepState.IN_PROGRESS) - was
        if change:
            key = (service, lane)
            self._running[key] = self._running.get(key, 0) + change

    def _event(self, event: Event) -> None:
        if event.data is not None:
            if "outcome" in event.data:
                self.callbacks_noted.labels(str(event.data["outcome"])).inc()
            if "escalated" in event.data:
                self.escalations.labels(str(event.data["escalated"])).inc()
        if event.type == Kind.TICK.value:
            for move in event.moves:
                self.ticks.labels(_without_subject(move)).inc()

    # -- gauges ------------------------------------------------------------------------------

    def recovered(self, job: Job) -> None:
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            self._count_running(planned.service, job.plan.routing.lane, None, step)

    async def rows(self) -> list[BacklogRow]:
        """The backlog by service and lane, for operators and autoscalers."""
        engine = self._engine
        rows: dict[tuple[str, int], BacklogRow] = {}
        for queue in await engine.ledger.ready_queues(engine.lanes):
            _row(rows, queue.service, queue.lane)["held"] += queue.held
        for key, (released, size) in engine.windows.snapshot().items():
            row = _row(rows, *key)
            row["released"], row["window"] = released, size
        for key, running in self._running.items():
            _row(rows, *key)["in_progress"] = running
        return [row for _, row in sorted(rows.items())]

    async def refresh(self) -> None:
        for gauge in (self.backlog, self.window, self.inflight):
            gauge.clear()
        for row in await self.rows():
            place = (row["service"], str(row["lane"]))
            self.backlog.labels(*place, "held").set(row["held"])
            self.backlog.labels(*place, "released").set(row["released"])
            self.backlog.labels(*place, "in_progress").set(row["in_progress"])
            self.window.labels(*place).set(row["window"])
        inflight = await self._engine.ledger.inflight()
        for tenant_id, count in inflight.tenants.items():
            self.inflight.labels(tenant_id).set(count)
        page = await self._engine.ledger.list(JobQuery(dlq=True, limit=1000))
        self.dlq.set(len(page.jobs))


def _row(rows: dict[tuple[str, int], BacklogRow], service: str, lane: int) -> BacklogRow:
    blank = BacklogRow(service=service, lane=lane, held=0, released=0, in_progress=0, window=0)
    return rows.setdefault((service, lane), blank)


def _changed(earlier: Step | None, step: Step) -> Iterator[tuple[Execution, Execution | None]]:
    known = {e.exec_id: e for e in earlier.executions} if earlier is not None else {}
    for execution in step.executions:
        was = known.get(execution.exec_id)
        if execution is not was:
            yield execution, was


def _without_subject(move: str) -> str:
    """`step ocr IN_PROGRESS->FAILED_RETRY` as `step IN_PROGRESS->FAILED_RETRY`."""
    words = move.split(" ")
    return f"{words[0]} {words[-1]}"
