"""The rules that look at a job as a whole: how it ended, who holds it up, what is away."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from lucius.core.job import PAUSED_JOB, Job, JobState, StepState
from lucius.core.text import failure_of, place_in
from lucius.operations.facts import MOVER, Clues, Facts, Ordered, QueuePlace, Situation
from lucius.operations.service_rules import (
    SILENT,
    failed_alike,
    fails_alike,
    never_seen,
    not_subscribed,
    replies_refused,
    silent,
)
from lucius.ports.diagnosis import Diagnosis, Evidence
from lucius.ports.services import KnownService
from lucius.ports.workspace import Unrestored

# The rules about one step of a job that has not finished.

StepCheck = Callable[[Situation], Diagnosis | None]


def publish_refused(at: Situation) -> Diagnosis | None:
    entry = at.step.entry
    if not at.step.held or entry is None or entry.ready_at is None:
        return None
    return Diagnosis(
        "PUBLISH_REFUSED",
        f"the broker refused the directive of step {at.plan.step_id} of job {at.job.job_id}",
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
    return Diagnosis(
        "BUSY",
        f"{at.plan.service} is busy{counts}",
        at.step.updated_at,
        [*_line(at, place), *([Evidence(pace)] if at.facts.whole else [])],
        "a worker takes it",
        at.facts.now + timedelta(minutes=minutes) if minutes is not None else None,
        "lucius services",
        at.plan.service,
    )


def _line(at: Situation, place: QueuePlace | None) -> list[Evidence]:
    """The place in line: among those that wait to be sent, or among those that are out."""
    if at.step.held:
        return [Evidence(_before(place))]
    sent = Evidence("its directive went out", at.sent_at)
    others = Evidence(f"at most {max(at.service.sent - 1, 0)} others are taken before it")
    return [sent, others] if at.facts.whole else [sent]


def _before(place: QueuePlace | None) -> str:
    if place is None:
        return "some of its tenant are before it in line"
    if place.ahead == 0:
        return "it is the next of its tenant"
    more, are = "more than " if place.more else "", "is" if place.ahead == 1 else "are"
    return f"{more}{place.ahead} of its tenant {are} before it in line"


def _ahead(view: KnownService, place: QueuePlace | None) -> int:
    """How many go before it, if tenants and lanes take turns: no more than all that wait."""
    if place is None:
        return view.waiting
    return min(view.waiting, (place.ahead + 1) * max(place.queues, 1)) + view.sent


def awaits_ack(at: Situation) -> Diagnosis | None:
    if not at.step.unacked:
        return None
    until = at.run.lease_expires_at if at.run is not None else None
    evidence = [Evidence("the directive went out", at.sent_at)]
    if at.service.last_seen is None:
        evidence.append(Evidence(f"no worker of {at.plan.service} has been seen yet"))
    return Diagnosis(
        "AWAITS_ACK",
        f"step {at.plan.step_id} was sent to {at.plan.service} and waits for a worker to take it",
        at.sent_at,
        evidence,
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
    who, progress = run.lease_owner or "a worker", at.clues.progress.get(at.plan.step_id)
    said = "has said nothing for long" if quiet else "is at work on it"
    return Diagnosis(
        "WORKER_QUIET" if quiet else "AT_WORK",
        f"{who} {said} (step {at.plan.step_id}, attempt {run.attempt_no})",
        heard if quiet else run.started_at,
        [
            Evidence("the worker took it", run.started_at),
            Evidence("last heard of", heard),
            *([Evidence(f"it says: {progress}")] if progress else []),
        ],
        "the lease ends, unless the worker answers or sends a heartbeat",
        run.lease_expires_at,
        f"lucius job watch {at.job.job_id}",
        at.plan.service,
    )


def _fault(at: Situation) -> list[Evidence]:
    fault = at.step.fault
    return [Evidence(f"{fault.code}: {fault.message}", at.step.updated_at)] if fault else []


OVERDUE: Final = timedelta(seconds=90)
"""A job that has been due for longer is looked after by nobody."""
MOST_NAMED: Final = 10
"""Lost outputs that are named; `lucius verify` names all of them."""
BEHIND: Final = timedelta(seconds=5)
"""What is stored may be so much ahead of this clock."""

JobCheck = Callable[[Job, Facts, Clues], Diagnosis | None]


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


def output_lost(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    return not_restored(clues.unrestored) if clues.unrestored else None


def not_restored(lost: Sequence[Unrestored]) -> Diagnosis:
    outputs = "1 output was" if len(lost) == 1 else f"{len(lost)} outputs were"
    return Diagnosis(
        "OUTPUT_NOT_RESTORED",
        f"{outputs} lost with the power and cannot be written again",
        None,
        [Evidence(f"{e.path} of {e.job_id}: {e.reason}") for e in lost[:MOST_NAMED]],
        "each start tries it again",
        command="lucius verify",
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
            found = fails_alike(at) or failed_alike(at) or _nobody_was_there(at)
            if found is not None:
                return found
    return _failed_alone(job, facts)


def _nobody_was_there(at: Situation) -> Diagnosis | None:
    if at.step.fault is None or at.step.fault.code not in SILENT:
        return None
    if (found := replies_refused(at, ended=True)) is not None:
        return found
    if at.step.fault.code != "ACK_TIMEOUT":
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


def _failed_alone(job: Job, facts: Facts) -> Diagnosis:
    code = f" with {job.fault.code}" if job.fault is not None else ""
    place = place_in(job.fault.message) if job.fault is not None else None
    where = f" at {place}" if place else ""
    told = job.fault is None or job.fault.code not in SILENT
    others = _others(job, facts) if told else "its worker said nothing more"
    return Diagnosis(
        "JOB_FAILS_ALONE",
        f"it failed{code}{where}; {others}",
        job.completed_at,
        _failure(job),
        "nothing: it has ended, and stays in the dead-letter view",
        command=f"lucius job redrive {job.job_id}",
    )


def _others(job: Job, facts: Facts) -> str:
    """What is known of the service that failed it: never more than that it does not fail every job."""
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        view = facts.services.get(planned.service)
        if (
            step.state is StepState.FAILED_FINAL
            and view is not None
            and view.last_success is not None
        ):
            return f"other jobs of {planned.service} succeed"
    return "too few jobs have failed so to blame the service"


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
    if job.state not in PAUSED_JOB:
        return None
    pausing = job.state is not JobState.PAUSED
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
    if facts.owned is None or job.plan.shard in facts.owned:
        return None
    lanes, mover = facts.lanes_of(job.plan.engine), MOVER[job.plan.engine]
    return Diagnosis(
        "LANE_UNOWNED",
        f"no {mover} owns lane {job.plan.routing.lane}, on which the job runs",
        None,
        [Evidence(f"lanes {lanes} are owned by one", facts.now)],
        f"the next {mover} takes the lane",
        command=f"lucius {mover}",
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
            found.append(Evidence(f"step {planned.step_id} failed at {tries}"))
            found.append(Evidence(f"`lucius jobs --group {group}` lists those that failed alike"))
    return found
