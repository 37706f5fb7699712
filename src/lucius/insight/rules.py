"""The rules that name a cause: one small function each, tried in the order of the tables below.

They are pure: a rule looks at facts and answers a finding, or None where it does not apply.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from lucius.core.fingerprint import failure_of, place_in
from lucius.core.job import Job
from lucius.core.states import JobState, StepState
from lucius.insight.facts import Clues, Facts, LinePlace, Ordered, Situation
from lucius.insight.service_rules import (
    NO_FAULT,
    fails_alike,
    never_seen,
    not_subscribed,
    paused,
    silent,
)
from lucius.ports.diagnosis import Diagnosis, Evidence
from lucius.ports.services import ServiceView

OVERDUE: Final = timedelta(seconds=90)
"""A job that has been due for longer is looked after by nobody."""
BEHIND: Final = timedelta(seconds=5)
"""What is stored may be so much ahead of this clock."""

JobCheck = Callable[[Job, Facts, Clues], Diagnosis | None]
StepCheck = Callable[[Situation], Diagnosis | None]


# -- the whole job ---------------------------------------------------------------------------


def redriven(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    if job.redriven_by is None:
        return None
    return Diagnosis(
        "REDRIVEN",
        f"it ended {job.state.value}, and {job.redriven_by} took over from it",
        job.completed_at,
        [*_failure(job), Evidence(f"the job that took over is {job.redriven_by}")],
        "nothing: look at the job that took over",
        command=f"lucius why {job.redriven_by}",
    )


def succeeded(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    if job.state is not JobState.SUCCEEDED:
        return None
    steps = "its step" if len(job.steps) == 1 else f"all {len(job.steps)} steps"
    return Diagnosis(
        "SUCCEEDED",
        f"{steps} succeeded",
        job.completed_at,
        [Evidence("it ended SUCCEEDED", job.completed_at)],
        "nothing: it has ended",
        command=f"lucius job show {job.job_id}",
    )


def cancelled(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    if job.state is not JobState.CANCELLED:
        return None
    return Diagnosis(
        "CANCELLED",
        f"it was cancelled{_by(clues.orders.get('cancel'))}",
        job.completed_at,
        _order(clues, "cancel", job),
        "nothing: it has ended",
        command=f"lucius job redrive {job.job_id}",
    )


def failed(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    """Whose fault it is: the service's, if it fails every job so; nobody's, if nobody was there."""
    if job.state is not JobState.FAILED_FINAL:
        return None
    if job.fault is not None and job.fault.code == "SLA_EXCEEDED":
        return _ended_by_sla(job)
    for index, step in enumerate(job.steps):
        if step.state is StepState.FAILED_FINAL and step.fault is not None:
            at = Situation(job, index, facts, clues)
            found = fails_alike(at) or _nobody_was_there(at)
            if found is not None:
                return found
    return _failed_alone(job)


def _nobody_was_there(at: Situation) -> Diagnosis | None:
    if at.step.fault is None or at.step.fault.code != "ACK_TIMEOUT":
        return None
    run = at.run
    if run is not None and run.unclaimed_at is not None:
        return not_subscribed(at, ended=True)
    return never_seen(at, ended=True) or silent(at, ended=True)


def _ended_by_sla(job: Job) -> Diagnosis:
    return Diagnosis(
        "ENDED_BY_SLA",
        "it took longer than it may",
        job.completed_at,
        [*_failure(job), Evidence("it was accepted", job.plan.accepted_at)],
        "nothing: it has ended",
        command=f"lucius job redrive {job.job_id}",
    )


def _failed_alone(job: Job) -> Diagnosis:
    code = f" with {job.fault.code}" if job.fault is not None else ""
    place = place_in(job.fault.message) if job.fault is not None else None
    where = f" at {place}" if place else ""
    return Diagnosis(
        "JOB_FAILS_ALONE",
        f"it failed{code}{where}; other jobs of the service do not fail so",
        job.completed_at,
        _failure(job),
        "nothing: it has ended, and stays in the dead-letter view",
        command=f"lucius job redrive {job.job_id}",
    )


def cancelling(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    if job.state is not JobState.CANCELLING:
        return None
    return Diagnosis(
        "JOB_CANCELLING",
        f"it was cancelled{_by(clues.orders.get('cancel'))}, and a step is still under way",
        job.cancel_requested_at,
        [*_order(clues, "cancel", job), *_under_way(job)],
        "it ends with that step, or with its lease",
        _lease_end(job),
        f"lucius job cancel {job.job_id} --immediate",
    )


def paused_job(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    if job.state not in (JobState.PAUSED, JobState.PAUSING):
        return None
    pausing = job.state is JobState.PAUSING
    still = ", and a step is still under way" if pausing else ""
    return Diagnosis(
        "JOB_PAUSING" if pausing else "JOB_PAUSED",
        f"it was paused{_by(clues.orders.get('pause'))}{still}",
        job.paused_at,
        [*_order(clues, "pause", job), *_under_way(job)],
        "it is paused when that step has ended" if pausing else "nothing, until it is resumed",
        _lease_end(job) if pausing else None,
        f"lucius job resume {job.job_id}",
    )


def clock_off(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    told = facts.troubles.get("clock")
    if told is None and job.updated_at <= facts.now + BEHIND:
        return None
    return Diagnosis(
        "CLOCK_OFF",
        "the clock of this machine is wrong",
        None,
        [
            Evidence(told or "the clock is behind what is stored"),
            Evidence("by the clock it is now", facts.now),
            Evidence("the job was last moved", job.updated_at),
        ],
        "the process goes on when the clock is right",
        command="timedatectl",
    )


def lane_unowned(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    lane = job.plan.routing.lane
    if facts.owned is None or lane in facts.owned:
        return None
    return Diagnosis(
        "LANE_UNOWNED",
        f"no process owns lane {lane}, on which the job runs",
        None,
        [Evidence(f"lanes {sorted(facts.owned)} are owned", facts.now)],
        "a reconciler takes the lane",
        command="lucius reconciler",
    )


def not_ticked(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    if job.due_at is None or job.due_at + OVERDUE > facts.now:
        return None
    return Diagnosis(
        "NOT_TICKED",
        "it is due, and nobody moves it",
        job.due_at,
        [Evidence("it has been due since", job.due_at)],
        "the next look moves it, if the process is able to",
        command="lucius why",
    )


def outage_of(name: str, code: str, said: str, command: str) -> JobCheck:
    def rule(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
        return outage(facts, name, code, said, command)

    return rule


def outage(facts: Facts, name: str, code: str, said: str, command: str) -> Diagnosis | None:
    told = facts.troubles.get(name)
    if told is None:
        return None
    comes = "it goes on by itself when that is over"
    return Diagnosis(
        code, said, None, [Evidence(f"{name}: {told}", facts.now)], comes, command=command
    )


# -- one step --------------------------------------------------------------------------------


def publish_refused(at: Situation) -> Diagnosis | None:
    entry = at.step.entry
    if not at.step.held or entry is None or entry.ready_at is None:
        return None
    return Diagnosis(
        "PUBLISH_REFUSED",
        f"the broker refused the directive of step {at.plan.step_id}",
        at.step.updated_at,
        _fault(at),
        "it is published again",
        entry.ready_at,
        "lucius outbox retry",
        at.plan.service,
    )


def waits_for_retry(at: Situation) -> Diagnosis | None:
    if at.step.state is not StepState.FAILED_RETRY:
        return None
    code = at.step.fault.code if at.step.fault is not None else "a failure"
    used, most = at.step.used, at.plan.policy.max_attempts
    return Diagnosis(
        "WAITS_FOR_RETRY",
        f"step {at.plan.step_id} failed with {code} (attempt {used} of {most}) and is tried again",
        at.step.updated_at,
        _fault(at),
        f"attempt {used + 1} of {most} begins",
        at.step.retry_at,
        f"lucius job retry {at.job.job_id}",
        at.plan.service,
    )


def protocol_gone(at: Situation) -> Diagnosis | None:
    waits = at.step.held or at.step.unacked
    if not waits or at.plan.service in at.facts.protocols or at.service.running:
        return None
    return Diagnosis(
        "PROTOCOL_GONE",
        f"no protocol names the service {at.plan.service} any more",
        at.step.updated_at,
        [
            Evidence(f"the job was accepted for the protocol {at.job.plan.protocol_id}"),
            Evidence(f"services in force: {', '.join(sorted(at.facts.protocols)) or 'none'}"),
        ],
        "its attempts end one by one without an ACK",
        at.run.lease_expires_at if at.run is not None else None,
        "lucius protocols",
        at.plan.service,
    )


def held_by_limit(at: Situation) -> Diagnosis | None:
    place = at.clues.places.get(at.plan.step_id)
    if place is None or not place.limited:
        return None
    return Diagnosis(
        "HELD_BY_LIMIT",
        f"{at.plan.service} did not acknowledge the tenant's last directive: one at a time goes out",
        at.step.updated_at,
        [Evidence(f"{place.ahead} of this tenant are before it")],
        "the next goes out when the one that is out is acknowledged or times out",
        None,
        "lucius services --workers",
        at.plan.service,
    )


def busy(at: Situation) -> Diagnosis | None:
    """Held, or sent and waiting while others are at work."""
    view, place = at.service, at.clues.places.get(at.plan.step_id)
    if not at.step.held and not (at.step.unacked and view.running):
        return None
    ahead = _ahead(view, place) if at.step.held else view.sent
    minutes = ahead / view.rate if view.rate else None
    counts = f": {view.running} at work, {view.sent} sent, {view.waiting} waiting"
    counts = counts if at.facts.whole else ""
    pace = f"{view.rate:.1f} attempts ended a minute, over the last ten minutes"
    line = f"{'more than ' if place.more else ''}{place.ahead}" if place is not None else "some"
    return Diagnosis(
        "BUSY",
        f"{at.plan.service} is busy{counts}",
        at.step.updated_at,
        [
            Evidence(
                f"{line} of its tenant are before it on its lane" if at.step.held else "it is sent"
            ),
            *([Evidence(pace)] if at.facts.whole else []),
        ],
        "a worker takes it",
        at.facts.now + timedelta(minutes=minutes) if minutes is not None else None,
        "lucius services",
        at.plan.service,
    )


def _ahead(view: ServiceView, place: LinePlace | None) -> int:
    """How many go before it, if tenants and lanes take turns: no more than all that wait."""
    if place is None:
        return view.waiting
    return min(view.waiting, (place.ahead + 1) * max(place.queues, 1)) + view.sent


def awaits_ack(at: Situation) -> Diagnosis | None:
    if not at.step.unacked:
        return None
    until = at.run.lease_expires_at if at.run is not None else None
    return Diagnosis(
        "AWAITS_ACK",
        f"step {at.plan.step_id} was sent to {at.plan.service} and waits for a worker to take it",
        at.sent_at,
        [Evidence("the directive went out", at.sent_at)],
        "a worker takes it, or the attempt ends without an ACK",
        until,
        f"lucius job watch {at.job.job_id}",
        at.plan.service,
    )


def at_work(at: Situation) -> Diagnosis | None:
    """Quiet for more than half of its lease, or heard of since."""
    run = at.run
    if at.step.state is not StepState.IN_PROGRESS or run is None or run.lease_expires_at is None:
        return None
    heard = run.lease_expires_at - at.plan.policy.lease
    quiet = at.facts.now - heard > at.plan.policy.lease / 2
    who = run.lease_owner or "a worker"
    said = "has said nothing for long" if quiet else "is at work on it"
    return Diagnosis(
        "WORKER_QUIET" if quiet else "AT_WORK",
        f"{who} {said} (step {at.plan.step_id}, attempt {run.attempt_no})",
        heard if quiet else run.started_at,
        [Evidence("the worker took it", run.started_at), Evidence("last heard of", heard)],
        "the lease ends, unless the worker answers or sends a heartbeat",
        run.lease_expires_at,
        f"lucius job watch {at.job.job_id}",
        at.plan.service,
    )


# -- the tables ------------------------------------------------------------------------------

_LEDGER: Final = ("ledger", "LEDGER_AWAY", "the ledger does not take writes", "lucius ledger info")
_BUS: Final = ("bus", "BUS_AWAY", "the broker does not answer", "lucius outbox retry")
_ENGINE: Final = ("reconciler", "ENGINE_DOWN", "a part of LUCIUS is down", "lucius why")
OUTAGES: Final = (_LEDGER, _ENGINE, _BUS)

JOB_RULES: Final[tuple[JobCheck, ...]] = (
    redriven,
    succeeded,
    cancelled,
    failed,
    *(outage_of(*each) for each in OUTAGES),
    clock_off,
    lane_unowned,
    cancelling,
    paused_job,
    not_ticked,
)
"""The first that applies is the cause."""

STEP_RULES: Final[tuple[StepCheck, ...]] = (
    paused,
    publish_refused,
    fails_alike,
    not_subscribed,
    protocol_gone,
    never_seen,
    silent,
    held_by_limit,
    waits_for_retry,
    at_work,
    busy,
    awaits_ack,
)
"""For each step that is not finished; the worst of them is the cause."""


def diagnose(job: Job, facts: Facts, clues: Clues) -> Diagnosis:
    for rule in JOB_RULES:
        if (found := rule(job, facts, clues)) is not None:
            return found
    findings = [
        found
        for index, step in enumerate(job.steps)
        if step.out or step.held or step.state is StepState.FAILED_RETRY
        if (found := _of_step(Situation(job, index, facts, clues))) is not None
    ]
    worst = max(findings, key=lambda finding: finding.severity, default=None)
    if worst is None:
        return Diagnosis("AWAITS_ACK", "it is between two steps", job.updated_at)
    return _with_stage(job, worst)


def _of_step(at: Situation) -> Diagnosis | None:
    for rule in STEP_RULES:
        if (found := rule(at)) is not None:
            return found
    return None


def _with_stage(job: Job, worst: Diagnosis) -> Diagnosis:
    """Where nothing is wrong and some of a stage are done, the job waits for the others."""
    pairs = list(zip(job.plan.steps, job.steps, strict=True))
    stage = next((p.stage for p, s in pairs if s.state is not StepState.SUCCEEDED), None)
    members = [(p.step_id, s.state) for p, s in pairs if p.stage == stage]
    done = [name for name, state in members if state is StepState.SUCCEEDED]
    if worst.severity > NO_FAULT or not done:
        return worst
    left = [name for name, state in members if state is not StepState.SUCCEEDED]
    return Diagnosis(
        "WAITS_FOR_STAGE",
        f"{', '.join(done)} of its stage are done; {', '.join(left)} are not",
        job.updated_at,
        [Evidence(worst.summary, worst.since), *worst.evidence],
        "the next stage begins when all of them have succeeded",
        worst.next_at,
        f"lucius job watch {job.job_id}",
        worst.service,
    )


# -- words -----------------------------------------------------------------------------------


def _by(order: Ordered | None) -> str:
    if order is None or order.by is None:
        return ""
    return f" by {order.by}" + (f" ({order.reason})" if order.reason else "")


def _order(clues: Clues, kind: str, job: Job) -> list[Evidence]:
    order = clues.orders.get(kind)
    if order is None:
        return [Evidence(f"the {kind} was asked for", job.cancel_requested_at or job.paused_at)]
    by = f" by {order.by}" if order.by else ""
    reason = f": {order.reason}" if order.reason else ""
    return [Evidence(f"the {kind} was asked for{by}{reason}", order.at)]


def _under_way(job: Job) -> list[Evidence]:
    return [
        Evidence(f"step {planned.step_id} is {step.state.value}", step.updated_at)
        for planned, step in zip(job.plan.steps, job.steps, strict=True)
        if step.out
    ]


def _lease_end(job: Job) -> datetime | None:
    ends = (step.executions[-1].lease_expires_at for step in job.steps if step.out)
    return max((end for end in ends if end is not None), default=None)


def _failure(job: Job) -> list[Evidence]:
    if job.fault is None:
        return []
    found = [Evidence(f"{job.fault.code}: {job.fault.message}", job.completed_at)]
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        if step.state is StepState.FAILED_FINAL and step.fault is not None:
            group = failure_of(planned.step_id, planned.service, step.fault).group
            tries = f"attempt {step.used} of {planned.policy.max_attempts}"
            found.append(Evidence(f"step {planned.step_id} ({tries}), group {group}"))
    return found


def _fault(at: Situation) -> list[Evidence]:
    fault = at.step.fault
    return [Evidence(f"{fault.code}: {fault.message}", at.step.updated_at)] if fault else []
