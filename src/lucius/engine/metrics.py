"""What the engine does, counted: a listener on committed decisions, and levels read at a scrape."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nlargest
from typing import Final

from lucius import __version__
from lucius.core.effects import Committed, Event, Outcome
from lucius.core.errors import LedgerError
from lucius.core.inputs import (
    AckReceived,
    HeartbeatReceived,
    Input,
    Kind,
    LeaseReturned,
    ReplyRefused,
    ResultReceived,
)
from lucius.core.job import TERMINAL_JOB, AbortReason, Execution, Job, Step, StepState
from lucius.core.plan import Plan, mode_of, service_of
from lucius.core.routing import LANES
from lucius.engine.observer import Incident, Observer
from lucius.engine.windows import Key, Windows
from lucius.ports.engine import BacklogRow
from lucius.ports.lanes import LaneRows, Lanes
from lucius.ports.ledger import Inflight, JobQuery, Ledger, ReadyQueue
from lucius.system.instruments import Count, Distribution, Instruments, Labels, Level

MAX_TENANTS: Final = 200
"""Tenants with a series of their own: those with the most live jobs."""
OTHERS: Final = "(others)"
TRACKS: Final = {
    AbortReason.PUBLISH_REFUSED: "publish",
    AbortReason.ACK_TIMEOUT: "ack",
    AbortReason.LEASE_EXPIRED: "execution",
    AbortReason.RESULT_FAILED: "execution",
    AbortReason.RETURNED: "execution",
    AbortReason.PROCESS_DIED: "execution",
}
"""Of an attempt that is used up: most leases that are given back use up none."""
REPLY_KINDS: Final[Mapping[type, str]] = {
    AckReceived: "ack",
    ResultReceived: "result",
    HeartbeatReceived: "heartbeat",
    LeaseReturned: "release",
}

CAUSES: Final[Mapping[Incident, tuple[str, ...]]] = {
    Incident.OUTAGE: ("bus", "ledger"),
    Incident.REPLY_SET_ASIDE: (
        "BAD_TOKEN",
        "INVALID_CALLBACK",
        "JOB_UNREADABLE",
        "UNKNOWN_JOB",
        "WRONG_TENANT",
    ),
    Incident.TASK_FAILED: (
        "engine",
        "tick",
        "recovery",
        "unclaimed",
        "reconciler",
        "configuration",
        "callers",
    ),
    Incident.STUCK: ("due",),
    Incident.STALLED: ("process", "clock"),
    Incident.NUDGE_LOST: ("bus",),
    Incident.NOTICE_LOST: ("bus",),
    Incident.WORKFLOW_UNREACHED: ("signal", "start"),
    Incident.UNCLAIMED: ("unknown",),
}
"""Those that are known beforehand; a directive that nobody takes names a service of its job's plan."""


class EngineInstruments(Instruments):
    """Every metric of the engine. Labels come from configuration and closed sets, never from requests;
    the one exception, the tenant, is capped."""

    def __init__(self) -> None:
        request, service = ("request_type",), ("service",)
        self.accepted = Count("lucius_jobs_accepted_total", "Jobs accepted", request)
        self.ended = Count("lucius_jobs_ended_total", "Jobs ended", (*request, "state"))
        self.job_seconds = Distribution(
            "lucius_job_seconds", "From acceptance to the end of a job", request
        )
        self.step_seconds = Distribution(
            "lucius_step_seconds", "From the ACK to the end of an attempt", ("step_type",)
        )
        self.dispatch_lag = Distribution(
            "lucius_dispatch_lag_seconds", "From the wish for a directive to its ACK", service
        )
        self.ack_seconds = Distribution(
            "lucius_ack_seconds", "From the release of a directive to its ACK", service
        )
        self.attempts_failed = Count(
            "lucius_attempts_failed_total",
            "Attempts that ended without success, by reason",
            (*service, "reason"),
        )
        self.retries = Count(
            "lucius_retries_total", "Steps that wait for another try, by track", ("track",)
        )
        self.replies = Count(
            "lucius_replies_total",
            "Replies of services: applied, or duplicate, late, stale or rejected and not applied",
            ("kind", "outcome"),
        )
        self.ticks = Count(
            "lucius_sweeper_actions_total", "Moves that time alone caused", ("move",)
        )
        self.escalations = Count(
            "lucius_escalations_total", "Jobs and pauses beyond their SLA", ("sla",)
        )
        self.effects = Count(
            "lucius_effects_settled_total",
            "Owed effects (webhooks, redrive links) performed or given up",
            ("effect", "performed"),
        )
        self.incidents = Count(
            "lucius_incidents_total",
            "What went wrong outside of any job: outages, replies set aside, failed tasks, stuck ticks, "
            "stalls of the process or jumps of its clock, "
            "directives that nobody takes (the cause is their service)",
            ("incident", "cause"),
        )
        self.backlog = Level(
            "lucius_backlog",
            "Directives held, released and in progress",
            ("service", "lane", "stage"),
        )
        self.window = Level(
            "lucius_window",
            "Directives that may wait at the service, as this process counts",
            ("service",),
        )
        self.inflight = Level(
            "lucius_inflight_jobs",
            f"Live jobs; the {MAX_TENANTS} busiest tenants, the rest as {OTHERS}",
            ("tenant_id",),
        )
        self.dlq = Level("lucius_dlq_jobs", "Jobs in the dead-letter view")
        self.unrestored = Level(
            "lucius_unrestored_outputs",
            "Outputs that a loss of power took and that could not be written again at the start",
        )
        self.unreadable = Level(
            "lucius_unreadable_jobs",
            "Jobs met since the start whose stored rows cannot be read",
        )
        self.overdue = Level(
            "lucius_overdue_seconds", "How long the job that is due first has been due"
        )
        self.dependency_up = Level(
            "lucius_dependency_up", "1 if the readiness check of it passes, else 0", ("dependency",)
        )
        self.loop_blocked = Distribution(
            "lucius_loop_blocked_seconds",
            "How long the event loop stood still, by the service that held it up"
            " (lucius: none of them)",
            service,
        )
        self.config_valid = Level(
            "lucius_config_valid",
            "1 if the newest configuration is in force, 0 if it is not valid or cannot be read",
        )
        self.config_valid.show({(): 1})
        self.build = Level("lucius_build_info", "Always 1", ("version",))
        self.build.show({(__version__,): 1})
        self._expect_fixed()

    def _expect_fixed(self) -> None:
        for track in set(TRACKS.values()):
            self.retries.expect(track)
        for kind in REPLY_KINDS.values():
            for outcome in Outcome:
                self.replies.expect(kind, outcome.value)
        for sla in ("job_sla", "pause_sla"):
            self.escalations.expect(sla)
        for performed in ("true", "false"):
            self.effects.expect("notify_client", performed)
        for incident, causes in CAUSES.items():
            for cause in causes:
                self.incidents.expect(incident.value, cause)


BACKLOG: Final = "backlog"
"""The key of the backlog in the row of a lane."""
RECOUNT: Final = timedelta(minutes=10)
"""Other processes change the dead-letter view too, so it is counted anew now and then."""

REREAD: Final = timedelta(seconds=15)
"""Other processes hold jobs too, and their nudges may be lost."""


class EngineMetrics(EngineInstruments, Observer):
    """`listen` to committed decisions, `refresh` before each scrape."""

    def __init__(
        self,
        ledger: Ledger,
        windows: Windows,
        *,
        lanes: Lanes,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._windows = windows
        self._lanes = lanes
        self._now = now
        self._met: set[str] = set()
        self._dlq: int | None = None
        self._dlq_counted_at: datetime | None = None
        self._moves = 0
        """Decisions that were committed here."""
        self.held: Sequence[ReadyQueue] = ()
        """The queues of the owned lanes as the ledger held them when they were last read."""
        self._held_when: tuple[int, frozenset[int]] | None = None
        """How many moves there had been, and which lanes were owned, when the held entries were read."""
        self._held_at = now()

    # -- what is told ------------------------------------------------------------------------

    def listen(self, commit: Committed) -> None:
        before, job = commit.before, commit.job
        self._moves += 1
        self._meet(job.plan)
        if before is None:
            self.accepted.add(job.plan.request_type)
        for index in commit.steps:
            earlier = before.steps[index] if before is not None else None
            self._step(job, index, earlier, job.steps[index])
        if job.terminal:
            self._ended(before, job)
        for event in commit.decision.events:
            if event.data is not None or event.type == Kind.TICK.value:
                self._event(event)

    def applied(self, received: Input, outcome: Outcome) -> None:
        reply = received.reply if isinstance(received, ReplyRefused) else received
        kind = REPLY_KINDS.get(type(reply))
        if kind is not None:
            self.replies.add(kind, outcome.value)

    def took_up(self, job: Job) -> None:
        self._meet(job.plan)

    def incident(self, incident: Incident, cause: str) -> None:
        self.incidents.add(incident.value, cause)

    # -- decisions ---------------------------------------------------------------------------

    def _meet(self, plan: Plan) -> None:
        """The first job of its type, new or of an earlier process: shown as 0 is what may happen to it."""
        request_type = plan.request_type
        if request_type in self._met:
            return
        self._met.add(request_type)
        for state in TERMINAL_JOB:
            self.ended.expect(request_type, state.value)
        for planned in plan.steps:
            self.incidents.expect(Incident.UNCLAIMED.value, planned.service)
            for reason in AbortReason:
                self.attempts_failed.expect(planned.service, reason.value)

    def _ended(self, before: Job | None, job: Job) -> None:
        was_in_dlq = before is not None and before.in_dlq
        if self._dlq is not None:
            self._dlq += job.in_dlq - was_in_dlq
        if before is not None and before.terminal:
            return
        request_type = job.plan.request_type
        self.ended.add(request_type, job.state.value)
        seconds = (job.updated_at - job.plan.accepted_at).total_seconds()
        self.job_seconds.add(seconds, request_type)

    def _step(self, job: Job, index: int, earlier: Step | None, step: Step) -> None:
        planned = job.plan.steps[index]
        for execution, was in _changed(earlier, step):
            if execution.started_at is not None and (was is None or was.started_at is None):
                self._acknowledged(planned.service, step, execution, execution.started_at)
            if execution.finished_at is not None and (was is None or was.finished_at is None):
                self._finished(planned.service, planned.step_type, execution)
                if earlier is None or step.used > earlier.used:
                    self._charged(step, execution)

    def _acknowledged(self, service: str, step: Step, execution: Execution, at: datetime) -> None:
        self.ack_seconds.add((at - execution.leased_at).total_seconds(), service)
        if step.entry is not None:
            self.dispatch_lag.add((at - step.entry.created_at).total_seconds(), service)

    def _finished(self, service: str, step_type: str, execution: Execution) -> None:
        if execution.started_at is not None and execution.finished_at is not None:
            seconds = (execution.finished_at - execution.started_at).total_seconds()
            self.step_seconds.add(seconds, step_type)
        if execution.reason is not None:
            self.attempts_failed.add(service, execution.reason.value)

    def _charged(self, step: Step, execution: Execution) -> None:
        """An attempt is used up, and another one follows."""
        reason = execution.reason
        if reason in TRACKS and (step.state is StepState.FAILED_RETRY or step.held):
            self.retries.add(TRACKS[reason])

    def _event(self, event: Event) -> None:
        data = event.data or {}
        if "escalated" in data:
            self.escalations.add(str(data["escalated"]))
        if "effect" in data:
            self.effects.add(str(data["effect"]), "true" if data["performed"] else "false")
        if event.type == Kind.TICK.value:
            for move in event.moves:
                self.ticks.add(_without_subject(move))

    # -- levels ------------------------------------------------------------------------------

    async def rows(self) -> list[BacklogRow]:
        """The backlog of the owned lanes by service, mode and lane, for operators and autoscalers."""
        queues = await self._ledger.ready_queues(self._lanes.owned)
        return [row for _, row in sorted(self._by_key(queues).items())]

    def _by_key(self, queues: Sequence[ReadyQueue]) -> dict[Key, BacklogRow]:
        rows: dict[Key, BacklogRow] = {}
        for queue in queues:
            _row(rows, (queue.queue_name, queue.lane))["held"] += queue.held
        for key, (released, running) in self._windows.snapshot().items():
            row = _row(rows, key)
            row["released"] += released
            row["in_progress"] += running
        for key, seconds in self._windows.oldest().items():
            _row(rows, key)["oldest_seconds"] = round(seconds, 3)
        for (queue_name, _), row in rows.items():
            row["window"] = self._windows.size(queue_name)
        return rows

    async def by_lane(self) -> LaneRows:
        """The same for other processes to read; idle lines are left out.

        It is asked for with every renewal. Where no job has moved, what is held is read again now and then.
        """
        asked, now = (self._moves, self._lanes.owned), self._now()
        if asked != self._held_when or now - self._held_at >= REREAD:
            self.held = await self._ledger.ready_queues(self._lanes.owned)
            self._held_when, self._held_at = asked, now
        found: dict[int, dict[str, list[BacklogRow]]] = {}
        for (_, shard), row in self._by_key(self.held).items():
            if row["held"] or row["released"] or row["in_progress"]:
                found.setdefault(shard, {BACKLOG: []})[BACKLOG].append(row)
        return found

    async def refresh(self, up: Mapping[str, bool]) -> None:
        """What cannot be read stays as it was: an autoscaler must not take an outage for idleness."""
        self.dependency_up.show({(name,): float(well) for name, well in up.items()})
        if not up.get("ledger", True):
            return
        try:
            rows, inflight = await self.rows(), await self._ledger.inflight()
            due_at = await self._ledger.next_due(self._lanes.owned)
            unreadable = await self._ledger.unreadable()
            await self._count_dlq()
        except LedgerError:
            self.dependency_up.cells[("ledger",)] = 0.0
            return
        self._show_backlog(rows)
        self.inflight.show(_by_tenant(inflight))
        overdue = (self._now() - due_at).total_seconds() if due_at is not None else 0.0
        self.overdue.show({(): max(0.0, overdue)})
        self.dlq.show({(): float(self._dlq or 0)})
        self.unreadable.show({(): float(unreadable)})

    def _show_backlog(self, rows: list[BacklogRow]) -> None:
        backlog: Counter[Labels] = Counter()
        for row in rows:
            place = (row["service"], str(row["lane"]))
            backlog[*place, "held"] += row["held"]
            backlog[*place, "released"] += row["released"]
            backlog[*place, "in_progress"] += row["in_progress"]
        self.backlog.show(dict(backlog))
        self.window.show({(name,): float(size) for name, size in self._windows.sizes().items()})

    async def _count_dlq(self) -> None:
        now = self._now()
        if self._dlq_counted_at is None or now - self._dlq_counted_at >= RECOUNT:
            self._dlq_counted_at = now
            self._dlq = await self._ledger.count(JobQuery(dlq=True))


async def backlog_of(lanes: Lanes) -> list[BacklogRow]:
    """As the owners of all lanes said when they last renewed their leases."""
    said = await lanes.rows()
    return [row for _, rows in sorted(said.items()) for row in rows.get(BACKLOG, ())]


def at_work_elsewhere(lanes: Lanes, workers: str) -> bool:
    """Whether these workers had work of other owners in progress when the leases were renewed last."""
    service = service_of(workers)
    return any(
        row["service"] == service and row["in_progress"] > 0
        for said in lanes.others.values()
        for row in said.get(BACKLOG, ())
    )


def _by_tenant(inflight: Inflight) -> dict[Labels, float]:
    tenants = inflight.tenants
    if len(tenants) <= MAX_TENANTS:
        return {(name,): float(count) for name, count in tenants.items()}
    busiest = nlargest(MAX_TENANTS, tenants.items(), key=lambda pair: pair[1])
    cells: dict[Labels, float] = {(name,): float(count) for name, count in busiest}
    return {**cells, (OTHERS,): sum(tenants.values()) - sum(cells.values())}


def _row(rows: dict[Key, BacklogRow], key: Key) -> BacklogRow:
    queue_name, lane = key
    return rows.setdefault(
        key,
        BacklogRow(
            service=service_of(queue_name),
            mode=mode_of(queue_name).value,
            lane=lane % LANES,
            held=0,
            released=0,
            in_progress=0,
            window=0,
            oldest_seconds=0.0,
        ),
    )


def _changed(earlier: Step | None, step: Step) -> Iterator[tuple[Execution, Execution | None]]:
    if earlier is None or not earlier.executions:
        for execution in step.executions:
            yield execution, None
    elif step.executions is not earlier.executions:
        known = {execution.exec_id: execution for execution in earlier.executions}
        for execution in step.executions:
            was = known.get(execution.exec_id)
            if execution is not was:
                yield execution, was


def _without_subject(move: str) -> str:
    """`step ocr IN_PROGRESS->FAILED_RETRY` as `step IN_PROGRESS->FAILED_RETRY`."""
    words = move.split(" ")
    return f"{words[0]} {words[-1]}"
