"""The log of the engine: a listener that says what someone would want to know of a job, once.

A failure of the job is a warning, a broken promise (SLA) an error, the ordinary end and what is
tried again information; every single move is only there for debugging.
"""

import logging
from collections.abc import Mapping
from typing import Any

from lucius.core.effects import Committed, Event, Outcome
from lucius.core.job import Job, Step
from lucius.core.states import JobState, StepState
from lucius.telemetry.logs import job_fields

log = logging.getLogger("lucius.jobs")


def log_moves(commit: Committed) -> None:
    before, job, decision = commit.before, commit.job, commit.decision
    if job.terminal and not (before is not None and before.terminal):
        _ended(job)
    for event in decision.events:
        if event.data is not None:
            _noted(job, event, event.data)
    if before is None or not log.isEnabledFor(logging.INFO):
        return
    for index in commit.steps:
        step = job.steps[index]
        if step.used > before.steps[index].used and _waits(step):
            _retried(job, index, step)
    if log.isEnabledFor(logging.DEBUG):
        for event in decision.events:
            log.debug("%s: %s", event.type, ", ".join(event.moves), extra=_about(job, event))


def _waits(step: Step) -> bool:
    """For another try."""
    if step.state is StepState.FAILED_RETRY:
        return True
    return step.held and step.entry is not None and step.entry.ready_at is not None


def _ended(job: Job) -> None:
    failed = job.state is JobState.FAILED_FINAL
    level = logging.WARNING if failed else logging.INFO
    if log.isEnabledFor(level):
        seconds = (job.updated_at - job.plan.accepted_at).total_seconds()
        why = f": {job.fault.code}" if failed and job.fault is not None else ""
        said = (job.plan.request_type, job.state.value, seconds, why)
        log.log(level, "%s ended %s after %.3f s%s", *said, extra=job_fields(job))


def _retried(job: Job, index: int, step: Step) -> None:
    planned, execution = job.plan.steps[index], step.execution
    reason = execution.reason if execution is not None else None
    code = step.fault.code if step.fault is not None else None
    at = step.retry_at or (step.entry.ready_at if step.entry is not None else None)
    fields = job_fields(
        job, planned.step_id, step.attempt_no, execution.exec_id if execution else None
    )
    said = (planned.step_id, step.attempt_no, reason, code, at)
    log.info("attempt %s/%d failed (%s, %s), tried again at %s", *said, extra=fields)


def _noted(job: Job, event: Event, data: Mapping[str, Any]) -> None:
    if "escalated" in data:
        log.error("beyond its SLA (%s)", data["escalated"], extra=_about(job, event))
    elif "outcome" in data:
        repeated = data["outcome"] == Outcome.DUPLICATE.value
        level = logging.DEBUG if repeated else logging.INFO
        said = (data["outcome"], event.type)
        log.log(level, "a %s reply (%s) was recorded, not applied", *said, extra=_about(job, event))
    elif data.get("performed") is False:
        log.warning("the effect %s was given up", data["effect"], extra=_about(job, event))


def _about(job: Job, event: Event) -> dict[str, Any]:
    return job_fields(job, event.step_id, event.attempt_no, event.lease_id)
