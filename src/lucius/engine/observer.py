"""What the engine tells besides its commits: outcomes, jobs taken up, incidents; and the log of its jobs.

Of a job, a failure is a warning, a broken promise (SLA) an error, the ordinary end and what is tried again
information; every single move is only there for debugging.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

from lucius.core.effects import Committed, Event, Outcome
from lucius.core.inputs import Input
from lucius.core.job import Job, JobState, Step, StepState
from lucius.system.logs import job_fields


class Incident(StrEnum):
    """Something went wrong that no job records."""

    OUTAGE = "outage"
    """A dependency stopped to answer; the cause names it."""
    REPLY_SET_ASIDE = "reply_set_aside"
    TASK_FAILED = "task_failed"
    """A background task ended by an error; the cause says which, the log why."""
    STUCK = "stuck"
    """Jobs are due and ticks do not move them."""
    STALLED = "stalled"
    """The process stood still, or its clock jumped ahead; the cause says which."""
    NUDGE_LOST = "nudge_lost"
    """The owner of a lane could not be told of a job that was moved here."""
    NOTICE_LOST = "notice_lost"
    """A worker could not be told that its job is being cancelled; its next heartbeat is answered."""
    WORKFLOW_UNREACHED = "workflow_unreached"
    """A workflow could not be started or signalled now; the cause says which. It is tried again."""
    UNCLAIMED = "unclaimed"
    """A directive that nobody takes; the cause names its service."""


class Observer:
    """Hears of everything and does nothing. One that does something overrides what it needs."""

    def applied(self, received: Input, outcome: Outcome) -> None:
        """An input was answered, whether or not anything was saved for it."""

    def took_up(self, job: Job) -> None:
        """An owned job as the ledger has it: left by an earlier process, or moved by another one."""

    def forgot(self, lanes: Collection[int]) -> None:
        """Lanes come or go: nothing that is known of their jobs holds."""

    def incident(self, incident: Incident, cause: str) -> None: ...


class Observers(Observer):
    """Tells several."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self._applied = tuple(each.applied for each in observers)

    def applied(self, received: Input, outcome: Outcome) -> None:
        for applied in self._applied:
            applied(received, outcome)

    def took_up(self, job: Job) -> None:
        for each in self._observers:
            each.took_up(job)

    def forgot(self, lanes: Collection[int]) -> None:
        for each in self._observers:
            each.forgot(lanes)

    def incident(self, incident: Incident, cause: str) -> None:
        for each in self._observers:
            each.incident(incident, cause)


class Outage:
    """Says once that a dependency is down and once that it is back."""

    def __init__(self, dependency: str, what: str, log: logging.Logger, observer: Observer) -> None:
        self._dependency = dependency
        self._what = what
        self._log = log
        self._observer = observer
        self.on = False
        self.why = ""
        """What was said when it began."""

    def began(self, error: BaseException) -> None:
        if not self.on:
            self.on = True
            self._observer.incident(Incident.OUTAGE, self._dependency)
            self.why = str(error) or type(error).__name__
            self._log.warning("outage of the %s: %s: %s", self._dependency, self._what, self.why)

    def ended(self) -> None:
        if self.on:
            self.on = False
            self._log.info("the outage of the %s is over", self._dependency)


moves = logging.getLogger("lucius.jobs")


def log_moves(commit: Committed) -> None:
    before, job, decision = commit.before, commit.job, commit.decision
    if job.terminal and not (before is not None and before.terminal):
        _ended(job)
    for event in decision.events:
        if event.data is not None:
            _noted(job, event, event.data)
    if before is None or not moves.isEnabledFor(logging.INFO):
        return
    for index in commit.steps:
        step = job.steps[index]
        if step.used > before.steps[index].used and _waits(step):
            _retried(job, index, step)
    if moves.isEnabledFor(logging.DEBUG):
        for event in decision.events:
            moves.debug("%s: %s", event.type, ", ".join(event.moves), extra=_about(job, event))


def _waits(step: Step) -> bool:
    """For another try."""
    if step.state is StepState.FAILED_RETRY:
        return True
    return step.held and step.entry is not None and step.entry.ready_at is not None


def _ended(job: Job) -> None:
    failed = job.state is JobState.FAILED_FINAL
    level = logging.WARNING if failed else logging.INFO
    if moves.isEnabledFor(level):
        seconds = (job.updated_at - job.plan.accepted_at).total_seconds()
        why = f": {job.fault.code}" if failed and job.fault is not None else ""
        said = (job.plan.request_type, job.state.value, seconds, why)
        moves.log(level, "%s ended %s after %.3f s%s", *said, extra=job_fields(job))


def _retried(job: Job, index: int, step: Step) -> None:
    planned, execution = job.plan.steps[index], step.execution
    reason = execution.reason if execution is not None else None
    code = step.fault.code if step.fault is not None else None
    at = step.retry_at or (step.entry.ready_at if step.entry is not None else None)
    fields = job_fields(
        job, planned.step_id, step.attempt_no, execution.exec_id if execution else None
    )
    said = (planned.step_id, step.attempt_no, reason, code, at)
    moves.info("attempt %s/%d failed (%s, %s), tried again at %s", *said, extra=fields)


def _noted(job: Job, event: Event, data: Mapping[str, Any]) -> None:
    if "escalated" in data:
        moves.error("beyond its SLA (%s)", data["escalated"], extra=_about(job, event))
    elif "outcome" in data:
        repeated = data["outcome"] == Outcome.DUPLICATE.value
        level = logging.DEBUG if repeated else logging.INFO
        said = (data["outcome"], event.type)
        moves.log(
            level, "a %s reply (%s) was recorded, not applied", *said, extra=_about(job, event)
        )
    elif data.get("performed") is False:
        moves.warning("the effect %s was given up", data["effect"], extra=_about(job, event))


def _about(job: Job, event: Event) -> dict[str, Any]:
    return job_fields(job, event.step_id, event.attempt_no, event.lease_id)
