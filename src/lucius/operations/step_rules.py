"""The rules that look at one step of a job that has not ended: what it waits for, who has it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lucius.core.job import StepState
from lucius.operations.facts import QueuePlace, Situation
from lucius.operations.service_rules import between, drop_worker, patience
from lucius.ports.diagnosis import Diagnosis, Evidence
from lucius.ports.services import KnownService

DISK_FULL: Final = "DISK_FULL"
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


def disk_full(at: Situation) -> Diagnosis | None:
    fault = at.step.fault
    if at.step.state is not StepState.FAILED_RETRY or fault is None or fault.code != DISK_FULL:
        return None
    return Diagnosis(
        DISK_FULL,
        f"step {at.plan.step_id} has no room for what it writes, and is tried again",
        at.step.updated_at,
        _fault(at),
        "the next attempt begins",
        at.step.retry_at,
        f"lucius job retry {at.job.job_id}  # when there is room",
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


def protocol_gone(at: Situation, *, ended: bool = False) -> Diagnosis | None:
    fault = at.step.fault
    again = at.step.state is StepState.FAILED_RETRY and fault and fault.code == "ACK_TIMEOUT"
    waits = ended or at.step.held or at.step.unacked or again
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
        "nothing: the job has ended" if ended else "its attempts end one by one without an ACK",
        at.run.lease_expires_at if at.run is not None and not ended else None,
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
    counts = f": {view.running} at work, {view.sent} sent, {view.waiting} waiting"
    counts = counts if at.facts.whole else ""
    pace = f"{view.rate:.1f} attempts ended a minute, over the last ten minutes"
    soon = _takes(view, ahead)
    return Diagnosis(
        "BUSY",
        f"{at.plan.service} is busy{counts}",
        at.step.updated_at,
        [*_line(at, place), *([Evidence(pace)] if at.facts.whole else [])],
        f"a worker takes it{f', in {soon}' if soon else ''}",
        None,
        "lucius services",
        at.plan.service,
    )


def _takes(view: KnownService, ahead: int) -> str:
    """Until those before it are done, if steps take as long as they did lately; empty: that is not known."""
    if view.usual is None or not view.running:
        return ""
    median, most = view.usual
    rounds = -(-(ahead + 1) // view.running)
    return between((rounds - 1) * median, rounds * most)


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
    said = f"step {at.plan.step_id} was sent to {at.plan.service}"
    unseen = f", but no worker of {at.plan.service} has been seen yet"
    return Diagnosis(
        "AWAITS_ACK",
        f"{said} and waits for a worker{unseen if _unseen(at) else ' to take it'}",
        at.sent_at,
        [Evidence("the directive went out", at.sent_at)],
        "a worker takes it, or the attempt ends without an ACK",
        until,
        f"lucius job watch {at.job.job_id}",
        at.plan.service,
    )


def _unseen(at: Situation) -> bool:
    return at.service.last_seen is None and not at.service.here


def at_work(at: Situation) -> Diagnosis | None:
    """Quiet for longer than it should be, or heard of since."""
    run = at.run
    if at.step.state is not StepState.IN_PROGRESS or run is None or run.lease_expires_at is None:
        return None
    view = replace(at.service, lease=at.plan.policy.lease)
    worker = next((w for w in view.workers if w.worker_id == run.lease_owner), None)
    heard = run.lease_expires_at - at.plan.policy.lease
    if worker is not None and worker.pulls and worker.last_seen > heard:
        heard = worker.last_seen
    quiet = at.facts.now - heard > patience(view, worker)
    who, progress = run.lease_owner or "a worker", at.clues.progress.get(at.plan.step_id)
    usual = f"steps of {at.plan.service} take {between(*view.usual)}" if view.usual else ""
    dropped = quiet and worker is not None
    said = "has said nothing for long" if quiet else "is at work on it"
    return Diagnosis(
        "WORKER_QUIET" if quiet else "AT_WORK",
        f"{who} {said} (step {at.plan.step_id}, attempt {run.attempt_no})",
        heard if quiet else run.started_at,
        [
            Evidence("the worker took it", run.started_at),
            Evidence("last heard of", heard),
            *([Evidence(f"it says: {progress}")] if progress else []),
            *([Evidence(usual)] if usual else []),
        ],
        "if the worker stays silent, the step is retried",
        run.lease_expires_at,
        drop_worker(who) if dropped else f"lucius job watch {at.job.job_id}",
        at.plan.service,
    )


def _fault(at: Situation) -> list[Evidence]:
    fault = at.step.fault
    return [Evidence(f"{fault.code}: {fault.message}", at.step.updated_at)] if fault else []
