"""The rules about one step of a job that has not finished."""

from collections.abc import Callable
from datetime import timedelta

from lucius.core.states import StepState
from lucius.insight.facts import LinePlace, Situation
from lucius.ports.diagnosis import Diagnosis, Evidence
from lucius.ports.services import KnownService

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


def _line(at: Situation, place: LinePlace | None) -> list[Evidence]:
    """The place in line: among those that wait to be sent, or among those that are out."""
    if at.step.held:
        return [Evidence(_before(place))]
    sent = Evidence("its directive went out", at.sent_at)
    others = Evidence(f"at most {max(at.service.sent - 1, 0)} others are taken before it")
    return [sent, others] if at.facts.whole else [sent]


def _before(place: LinePlace | None) -> str:
    if place is None:
        return "some of its tenant are before it in line"
    if place.ahead == 0:
        return "it is the next of its tenant"
    more, are = "more than " if place.more else "", "is" if place.ahead == 1 else "are"
    return f"{more}{place.ahead} of its tenant {are} before it in line"


def _ahead(view: KnownService, place: LinePlace | None) -> int:
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
