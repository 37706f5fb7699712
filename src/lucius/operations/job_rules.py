"""The rules that look at a job as a whole: how it ended, who holds it up, what is away."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from lucius.core.job import PAUSED_JOB, Fault, Job, JobState, StepState
from lucius.core.text import failure_of, place_in
from lucius.operations.deliveries import failing
from lucius.operations.facts import MOVER, Clues, Facts, Ordered, Situation
from lucius.operations.refusals import RefusedTenant
from lucius.operations.service_rules import (
    SILENT,
    failed_alike,
    fails_alike,
    never_seen,
    not_subscribed,
    replies_refused,
    silent,
)
from lucius.operations.step_rules import DISK_FULL, protocol_gone
from lucius.ports.diagnosis import Diagnosis, Evidence, Impact
from lucius.ports.webhooks import FailedWebhook
from lucius.ports.workspace import Unrestored

OUTPUT_NOT_WRITABLE: Final = "OUTPUT_NOT_WRITABLE"
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
        impact=Impact(len({each.job_id for each in lost})),
    )


def failed_jobs(jobs: Sequence[Job], count: int, *, more: bool) -> Diagnosis:
    """`more`: there are more of them than these, the newest."""
    ended = [job.completed_at for job in jobs if job.completed_at is not None]
    codes = Counter(job.fault.code for job in jobs if job.fault is not None).most_common(3)
    kinds = ", ".join(f"{code} ({number})" for code, number in codes)
    which = f"the last {len(jobs)} failed with" if more else "they failed with"
    oldest = min(ended, default=None) if not more else None
    return Diagnosis(
        "JOBS_FAILED",
        f"{count} failed {'job waits' if count == 1 else 'jobs wait'} for a decision",
        oldest,
        [
            Evidence(f"{which} {kinds}"),
            Evidence("the last of them failed", max(ended, default=None)),
        ],
        "nothing, until they are redriven or dismissed",
        command="lucius failures",
        impact=Impact(count, sorted({job.tenant_id for job in jobs}), oldest, more),
    )


def webhook_fails(job: Job, facts: Facts, clues: Clues) -> Diagnosis | None:
    """Of a job that ended as it should. One that failed has a failure to look at first."""
    if job.state not in (JobState.SUCCEEDED, JobState.CANCELLED):
        return None
    found = [*failing(job), *clues.given_up]
    if not found:
        return None
    return Diagnosis(
        "WEBHOOK_FAILS",
        f"it ended {job.state.value}, and its client was not told: {found[0].error}",
        job.completed_at,
        list(_deliveries(found)),
        "the webhook is sent again" if found[0].next_at else "nothing: the webhook is given up",
        found[0].next_at,
        f"lucius webhooks resend {job.job_id}",
    )


def _deliveries(found: Sequence[FailedWebhook]) -> Iterator[Evidence]:
    for each in found:
        tries = "1 try" if each.tries == 1 else f"{each.tries} tries"
        yield Evidence(f"{each.host}: {each.error} ({tries})", each.failed_at)


def failed_webhooks(found: Sequence[FailedWebhook]) -> Diagnosis:
    """Of all jobs, the latest first."""
    jobs, first = {each.job_id for each in found}, min(each.failed_at for each in found)
    hosts = Counter(f"{each.host}: {each.error}" for each in found).most_common(MOST_NAMED)
    waits = [each.next_at for each in found if each.next_at is not None]
    of = "the webhook of 1 job is" if len(jobs) == 1 else f"webhooks of {len(jobs)} jobs are"
    return Diagnosis(
        "WEBHOOK_FAILS",
        f"{of} not delivered",
        first,
        [Evidence(f"{said} ({count})") for said, count in hosts],
        "they are sent again" if waits else "nothing: they are given up",
        min(waits, default=None),
        "lucius webhooks",
        impact=Impact(len(jobs), sorted({each.tenant_id for each in found}), first),
    )


def tenant_at_limit(tenant_id: str, refused: RefusedTenant, live: int, limit: int) -> Diagnosis:
    requests = "1 request was" if refused.requests == 1 else f"{refused.requests} requests were"
    return Diagnosis(
        "TENANT_AT_LIMIT",
        f"{tenant_id} has {live} of {limit} live jobs; {requests} refused in the last ten minutes",
        None,
        [Evidence("the last of them was refused (429 TENANT_SATURATED)", refused.last_at)],
        "requests are accepted as its jobs end",
        command=f"lucius jobs --tenant {shlex.quote(tenant_id)} --live",
        impact=Impact(live, [tenant_id]),
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
    if (gone := protocol_gone(at, ended=True)) is not None:
        return gone
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
    if job.fault is not None and job.fault.code in (OUTPUT_NOT_WRITABLE, DISK_FULL):
        return _not_written(job, job.fault)
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


def _not_written(job: Job, fault: Fault) -> Diagnosis:
    """The output has another place, or the place gets room: then the job is redriven."""
    return Diagnosis(
        fault.code,
        "its output cannot be written"
        if fault.code == OUTPUT_NOT_WRITABLE
        else "there is no room left where it writes",
        job.completed_at,
        _failure(job),
        "nothing: it has ended, and stays in the dead-letter view",
        command=f"lucius job redrive {job.job_id} --output REF",
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
