"""The rules about services, for a step that waits for one."""

import shlex
from datetime import datetime, timedelta
from typing import Final

from lucius.contract.causes import Severity
from lucius.core.job import StepState
from lucius.core.text import failure_of
from lucius.operations.facts import Facts, Situation
from lucius.ports.diagnosis import Diagnosis, Evidence, Impact
from lucius.ports.services import (
    MOST_JOBS,
    KnownService,
    KnownWorker,
    RetriedFailures,
    Streak,
)

MOMENT: Final = timedelta(seconds=3)
"""A worker that is there takes a directive sooner."""
SILENCE: Final = timedelta(seconds=10)
"""Nobody has spoken for so long, though work was there: that is no coincidence."""
MISSED_PULLS: Final = timedelta(minutes=1)
"""A worker with a free slot pulls more often."""
LONGER: Final = 3
"""A step that takes this many times as long as nearly all of its service needs a look."""
LEAST_PATIENCE: Final = timedelta(seconds=30)
SILENT: Final = ("ACK_TIMEOUT", "LEASE_EXPIRED")
"""Faults of an attempt whose worker said nothing: they have causes of their own."""
OF_THE_JOB: Final = ("OUTPUT_NOT_WRITABLE", "OUTPUT_EXISTS", "DISK_FULL")
"""Faults of where a job wants its output: no service mends them."""
UNAUTHENTICATED: Final = 401
NO_FAULT: Final = Severity.WAITS
"""The worst that is still no fault."""
Coming = tuple[str, datetime | None]
"""What happens next by itself, and when."""


def seconds(length: timedelta) -> str:
    """A length of time, in the unit that suits it."""
    found = length.total_seconds()
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if found >= 1.5 * size:
            return f"{found / size:.0f} {unit}"
    return f"{found:.0f} s" if found >= 1 else f"{found:.1f} s"


def patience(view: KnownService, worker: KnownWorker | None) -> timedelta:
    """How long a worker with a step in hand may be silent: half of a lease, or less where more is known."""
    longest = (view.lease or timedelta.max) / 2
    if worker is not None and worker.pulls and worker.running < (worker.slots or 0):
        longest = min(longest, MISSED_PULLS)
    if view.usual is not None:
        longest = min(longest, max(LEAST_PATIENCE, timedelta(seconds=LONGER * view.usual[1])))
    return longest


def between(low: float, high: float) -> str:
    """A range of time, as a person would say it."""
    first, last = seconds(timedelta(seconds=low)), seconds(timedelta(seconds=high))
    return f"about {first}" if first == last else f"{first} to {last}"


def paused(at: Situation) -> Diagnosis | None:
    view = at.service
    waits = at.step.held or at.step.out or at.step.state is StepState.FAILED_RETRY
    if view.paused_at is None or not waits:
        return None
    return paused_service(view)


def paused_service(view: KnownService) -> Diagnosis:
    by = f" by {view.paused_by}" if view.paused_by else ""
    reason = f": {view.paused_reason}" if view.paused_reason else ""
    return Diagnosis(
        "SERVICE_PAUSED",
        f"{view.service} is paused{by}{reason}",
        view.paused_at,
        [Evidence(f"{view.service} was paused{by}{reason}", view.paused_at)],
        "nothing, until the service is resumed",
        command=f"lucius service resume {view.service}",
        service=view.service,
    )


def services_down(at: Situation) -> Diagnosis | None:
    """The process that runs the service has died, and nobody else has taken the step."""
    how = at.facts.down.get(at.plan.service)
    if how is None or not (at.step.held or at.step.unacked):
        return None
    return Diagnosis(
        "SERVICES_DOWN",
        f"the process that runs {at.plan.service} has died, and another one is being started",
        at.step.updated_at,
        [Evidence(how)],
        "the next process takes the step",
        command="lucius services",
        service=at.plan.service,
    )


def is_of(at: Situation, streak: Streak) -> bool:
    """Whether the failure of the step is one of these."""
    fault, failed_at = at.step.fault, at.step.updated_at
    if fault is None or not at.step.used or failed_at is None or failed_at < streak.since:
        return False
    if streak.until is not None and failed_at > streak.until:
        return False
    own = failure_of(at.plan.step_id, at.plan.service, fault).group
    return streak.group in ("", own) and fault.code not in (*SILENT, *OF_THE_JOB)


def fails_alike(at: Situation) -> Diagnosis | None:
    view, fault = at.service, at.step.fault
    streaks = (each for each in (view.failing, view.failing_before) if each is not None)
    streak = next((each for each in streaks if is_of(at, each)), None)
    if streak is None or fault is None:
        return None
    again = at.step.retry_at if at.step.state is StepState.FAILED_RETRY else None
    said = f"{fault.code}: {fault.message}"
    return failing_service(
        at.service, streak, said, whole=at.facts.whole, retried=again is not None, retry_at=again
    )


def failing_service(
    view: KnownService,
    streak: Streak,
    said: str,
    *,
    whole: bool,
    retried: bool,
    retry_at: datetime | None = None,
) -> Diagnosis:
    """`said`: the error, as a job says it that the asker may see; empty: there is none."""
    evidence = [
        Evidence("no job of it has succeeded since", streak.since),
        *([Evidence(said)] if said else []),
        *_group(streak),
    ]
    comes = "failed attempts are repeated" if retried else "nothing: what failed is final"
    impact = Impact(streak.jobs, sorted(streak.tenants), streak.since, streak.jobs >= MOST_JOBS)
    if streak.one_tenant:
        return Diagnosis(
            "TENANT_FAILS_ALIKE",
            f"every job of {streak.one_tenant} fails in {view.service} {_how(streak)}",
            streak.since,
            [*evidence, Evidence("no job of another tenant has ended there since", streak.since)],
            comes,
            retry_at,
            _list_of(streak, view.service),
            view.service,
            impact,
        )
    return Diagnosis(
        "SERVICE_FAILS_ALIKE",
        f"{view.service} fails every job {_how(streak)}",
        streak.since,
        evidence,
        comes,
        retry_at,
        f"lucius service pause {view.service}",
        view.service,
        impact if whole else None,
    )


def _how(streak: Streak) -> str:
    return f"alike with {streak.code}" if streak.group else "in different ways"


def _list_of(streak: Streak, service: str) -> str:
    """The command that lists what failed in a streak."""
    if streak.group:
        return f"lucius jobs --group {streak.group}"
    return f"lucius failures --service {service}"


def degraded(at: Situation) -> Diagnosis | None:
    """The step waits for a retry, of a failure that many attempts of its service have."""
    fault, trouble = at.step.fault, at.service.degraded
    if at.step.state is not StepState.FAILED_RETRY or fault is None or trouble is None:
        return None
    if fault.code != trouble.code:
        return None
    return degraded_service(at.service, trouble, at.step.retry_at, whole=at.facts.whole)


def degraded_service(
    view: KnownService,
    trouble: RetriedFailures,
    retry_at: datetime | None = None,
    *,
    whole: bool,
) -> Diagnosis:
    share = f"{trouble.failed / trouble.ended:.0%}" if whole else "many"
    minutes = f"the last {trouble.minutes} min" if trouble.minutes > 1 else "the last minute"
    count = f"{trouble.failed} of {trouble.ended} attempts in {minutes} failed so"
    cost = "each costs its job an attempt and the wait before the next one"
    return Diagnosis(
        "SERVICE_DEGRADED",
        f"{share} of the attempts of {view.service} fail with {trouble.code}, and are repeated",
        trouble.since,
        [*([Evidence(count, trouble.since)] if whole else []), Evidence(cost)],
        "each of them is tried again after its backoff, until its attempts are used up",
        retry_at,
        f"lucius failures --service {view.service}",
        view.service,
    )


def failed_alike(at: Situation) -> Diagnosis | None:
    """The service failed every job when this one failed, and works again."""
    streak, fault = at.service.failed_until, at.step.fault
    if streak is None or fault is None or not is_of(at, streak):
        return None
    many = f"lucius redrive --group {streak.group}" if streak.group else ""
    of = f" of {streak.one_tenant}" if streak.one_tenant else ""
    return Diagnosis(
        "TENANT_FAILS_ALIKE" if of else "SERVICE_FAILS_ALIKE",
        f"{at.plan.service} failed every job{of} {_how(streak)} when this one failed; it works again",
        streak.since,
        [
            Evidence(f"{fault.code}: {fault.message}", at.step.updated_at),
            Evidence("jobs of it succeed again since", streak.until),
            *_group(streak),
        ],
        "nothing: the job has ended, and stays in the dead-letter view",
        command=many or f"lucius job redrive {at.job.job_id}",
        service=at.plan.service,
    )


def _group(streak: Streak) -> list[Evidence]:
    return [Evidence(f"the group of these failures is {streak.group}")] if streak.group else []


def not_subscribed(at: Situation, *, ended: bool = False) -> Diagnosis | None:
    run = at.run
    left = run is not None and run.unclaimed_at is not None and run.started_at is None
    waits = at.step.unacked or at.step.state is StepState.FAILED_RETRY or ended
    if not waits or not left or run is None:
        return None
    return unclaimed_service(at.service, at.facts, run.unclaimed_at, ended=ended)


def unclaimed_service(
    view: KnownService, facts: Facts, since: datetime | None = None, *, ended: bool = False
) -> Diagnosis:
    return Diagnosis(
        "NOT_SUBSCRIBED",
        f"no subscription takes the directives of {view.service}",
        since,
        [Evidence("the broker gave a directive back that nobody takes", since)],
        "nothing: the job has ended"
        if ended
        else "the attempt ends without an ACK, and is repeated",
        command="lucius bus provision" if facts.provisions else "lucius protocols",
        service=view.service,
    )


def replies_refused(at: Situation, *, ended: bool = False) -> Diagnosis | None:
    """Workers are there and answer, and what they say is not accepted."""
    since = at.clues.refused.get(at.plan.step_id)
    if since is None and at.service.refused and not ended:
        since = at.service.refused_at
    if since is None or not _waits(at, timedelta(), ended=ended):
        return None
    return refused_service(at.service, since, _next(at, ended=ended))


def refused_service(view: KnownService, since: datetime | None, comes: Coming) -> Diagnosis:
    return Diagnosis(
        "BAD_TOKEN",
        f"replies of {view.service} are refused: their callback token is missing or wrong",
        since,
        [Evidence("a reply was refused (BAD_TOKEN)", since)],
        *comes,
        "lucius services",
        view.service,
    )


def never_seen(at: Situation, *, ended: bool = False) -> Diagnosis | None:
    if _known(at.service) or not _waits(at, MOMENT, ended=ended):
        return None
    return absent_service(at.service, at.step.updated_at, _next(at, ended=ended))


def silent(at: Situation, *, ended: bool = False) -> Diagnosis | None:
    view = at.service
    if not _known(view) or not _waits(at, SILENCE, ended=ended):
        return None
    if not ended and not _is_silent(view, at):
        return None
    seen, over = view.last_seen, at.job.completed_at
    if ended and over is not None and seen is not None and seen > over:
        return _was_silent(at, seen)
    return silent_service(view, _next(at, ended=ended))


def _known(view: KnownService) -> bool:
    """Whether somebody works for it, or did: the process that is asked may run it itself."""
    return view.last_seen is not None or view.here


def _was_silent(at: Situation, seen: datetime) -> Diagnosis:
    """Nobody took it, and workers are there again."""
    tries = f"attempt {at.step.used} of {at.plan.policy.max_attempts}"
    return Diagnosis(
        "WORKERS_SILENT",
        f"no worker of {at.plan.service} took it in time; workers were seen again after it had failed",
        at.job.completed_at,
        [
            Evidence(f"step {at.plan.step_id} was given up ({tries})", at.job.completed_at),
            Evidence("the last of them was seen", seen),
        ],
        "nothing: the job has ended, and stays in the dead-letter view",
        command=f"lucius job redrive {at.job.job_id}",
        service=at.plan.service,
    )


def _waits(at: Situation, patience: timedelta, *, ended: bool) -> bool:
    """For a worker, and longer than one that is there would need."""
    if ended:
        return True
    if at.step.state is StepState.FAILED_RETRY:
        return at.step.fault is not None and at.step.fault.code == "ACK_TIMEOUT"
    if at.step.unacked:
        return at.waited() > patience
    oldest = at.service.oldest_sent
    return at.step.held and oldest is not None and at.facts.now - oldest > patience


def _is_silent(view: KnownService, at: Situation) -> bool:
    since = at.sent_at or view.oldest_sent or at.step.updated_at
    return since is not None and unheard(view, since)


def unheard(view: KnownService, since: datetime) -> bool:
    """Nobody has spoken since the work was there, though nothing is at work or there were slots for more.

    Or all that is at work is in the hands of workers that are quiet.
    """
    if view.running and view.quiet >= view.running:
        return True
    spoke = view.last_seen is not None and view.last_seen > since
    return (not view.running or view.free > 0) and not spoke


def _next(at: Situation, *, ended: bool) -> Coming:
    if ended:
        return "nothing: the job has ended", None
    if at.step.retry_at is not None:
        return "the next attempt begins", at.step.retry_at
    until = at.run.lease_expires_at if at.run is not None else None
    return "the attempt ends without an ACK, and is repeated", until


def turned_away(view: KnownService, comes: Coming) -> Diagnosis | None:
    """Workers come, and are refused: they pull in another name, or with a key that is not accepted."""
    if view.pull_refused is not None and not _heard_since(view, view.pull_refused[0]):
        at, status, key_id = view.pull_refused
        key = f"the key {key_id}" if key_id else "no key"
        meaning = (
            "is not known, revoked or expired" if status == UNAUTHENTICATED else "may not pull"
        )
        return Diagnosis(
            "WORKERS_REFUSED",
            f"workers of {view.service} are refused: {status}",
            at,
            [Evidence(f"a pull with {key} was answered {status}: the key {meaning}", at)],
            *comes,
            "lucius keys create NAME --role service --all-tenants",
            view.service,
        )
    if view.misnamed is None:
        return None
    return Diagnosis(
        "WORKERS_MISNAMED",
        f"workers pull for {view.misnamed!r}, which no protocol names: did they mean {view.service}?",
        None,
        [Evidence(f"nobody pulls for {view.service}, and jobs wait for it")],
        *comes,
        "lucius services",
        view.service,
    )


def _heard_since(view: KnownService, at: datetime) -> bool:
    return view.last_seen is not None and view.last_seen > at


def absent_service(view: KnownService, since: datetime | None, comes: Coming) -> Diagnosis:
    return turned_away(view, comes) or _missing(
        view,
        "NO_WORKER_EVER",
        f"no worker of {view.service} was ever seen",
        since,
        [
            Evidence("nobody has pulled, acknowledged or answered anything of it"),
            *([Evidence(_meant(view))] if view.similar else []),
        ],
        comes,
    )


def _meant(view: KnownService) -> str:
    return f"workers of {view.similar} are there: does the protocol mean {view.similar}?"


def silent_service(view: KnownService, comes: Coming) -> Diagnosis:
    known = [Evidence(f"{w.worker_id} was last seen", w.last_seen) for w in view.workers[:3]]
    return turned_away(view, comes) or _missing(
        view,
        "WORKERS_SILENT",
        f"the workers of {view.service} are silent",
        view.last_seen,
        [Evidence("the last of them was seen", view.last_seen), *known],
        comes,
    )


def _missing(
    view: KnownService,
    code: str,
    said: str,
    since: datetime | None,
    evidence: list[Evidence],
    comes: Coming,
) -> Diagnosis:
    return Diagnosis(
        code,
        said,
        since,
        evidence,
        *comes,
        f"lucius service run MODULE:NAME --url URL  # a service whose name is {view.service}",
        view.service,
    )


# The rules about services by themselves: what is wrong with one, whoever waits for it.


def wrong_with(view: KnownService, facts: Facts) -> Diagnosis | None:
    """What is wrong with a service by itself, if anything."""
    now, whole = facts.now, facts.whole
    if view.paused_at is not None:
        return paused_service(view) if view.waiting else None
    streak = view.failing
    if streak is not None:
        said = f"{streak.code}: {streak.message}" if whole else ""
        return failing_service(view, streak, said, whole=whole, retried=streak.retried)
    if not view.step_types and not view.running and (view.waiting or view.untaken is not None):
        return _unnamed(view)
    if not view.subscribed:
        return unclaimed_service(view, facts)
    comes: Coming = ("attempts end without an ACK, and are repeated", None)
    waits = _missed(view, now, SILENCE if _known(view) else MOMENT)
    if view.refused and waits:
        return refused_service(view, view.refused_at, comes)
    if not _known(view):
        return absent_service(view, min(waits), comes) if waits else None
    if any(unheard(view, since) for since in waits):
        return silent_service(view, comes)
    if view.late:
        return quiet_workers(view, whole=whole)
    if view.degraded is None or not whole:
        return None
    return degraded_service(view, view.degraded, whole=whole)


def _unnamed(view: KnownService) -> Diagnosis:
    """A worker would not help: nobody is handed the work of a service that no protocol names."""
    return Diagnosis(
        "PROTOCOL_GONE",
        f"jobs wait for the service {view.service}, which no protocol names any more",
        view.untaken or view.oldest_sent,
        [Evidence("no protocol in force has a step of it")],
        "its attempts end one by one without an ACK",
        command="lucius protocols",
        service=view.service,
    )


def _missed(view: KnownService, now: datetime, patience: timedelta) -> list[datetime]:
    """Since when work was there that a worker should have taken."""
    found = [view.untaken] if view.untaken is not None else []
    if view.oldest_sent is not None and now - view.oldest_sent > patience:
        found.append(view.oldest_sent)
    return found


def quiet_workers(view: KnownService, *, whole: bool) -> Diagnosis:
    known = [w for w in reversed(view.workers) if w.running][:3]
    count = f"{view.late} of {view.running} steps at work are theirs"
    return Diagnosis(
        "WORKER_QUIET",
        f"workers of {view.service} have work in hand and have said nothing for long",
        known[0].last_seen if known else None,
        [
            *([Evidence(count)] if whole else []),
            *(Evidence(f"{w.worker_id} was last seen", w.last_seen) for w in known),
        ],
        "their leases end, and the steps are tried again",
        command=drop_worker(known[0].worker_id) if known else "lucius services --workers",
        service=view.service,
    )


def drop_worker(worker_id: str) -> str:
    return f"lucius worker drop {shlex.quote(worker_id)}  # if it is gone"
