"""The rules about services by themselves: what is wrong with one, whoever waits for it."""

from datetime import datetime, timedelta

from lucius.insight.service_rules import (
    MOMENT,
    SILENCE,
    Coming,
    absent_service,
    degraded_service,
    failing_service,
    paused_service,
    refused_service,
    silent_service,
    unclaimed_service,
    unheard,
)
from lucius.ports.diagnosis import Diagnosis, Evidence
from lucius.ports.services import KnownService


def wrong_with(view: KnownService, now: datetime, *, whole: bool) -> Diagnosis | None:
    """What is wrong with a service by itself, if anything. `whole`: for who may see all tenants."""
    if view.paused_at is not None:
        return paused_service(view) if view.waiting else None
    streak = view.failing
    if streak is not None:
        return failing_service(view, streak, f"{streak.code}: {streak.message}" if whole else "")
    if not view.step_types and not view.running and (view.waiting or view.untaken is not None):
        return _unnamed(view)
    if not view.subscribed:
        return unclaimed_service(view)
    comes: Coming = ("attempts end without an ACK, and are repeated", None)
    waits = _missed(view, now, MOMENT if view.last_seen is None else SILENCE)
    if view.refused and waits:
        return refused_service(view, view.refused_at, comes)
    if view.last_seen is None:
        return absent_service(view, min(waits), comes) if waits else None
    if any(unheard(view, since) for since in waits):
        return silent_service(view, comes)
    if view.quiet:
        return quiet_workers(view, whole=whole)
    return degraded_service(view, view.degraded) if view.degraded is not None and whole else None


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
    count = f"{view.quiet} of {view.running} steps at work are theirs"
    return Diagnosis(
        "WORKER_QUIET",
        f"workers of {view.service} have work in hand and have said nothing for long",
        known[0].last_seen if known else None,
        [
            *([Evidence(count)] if whole else []),
            *(Evidence(f"{w.worker_id} was last seen", w.last_seen) for w in known),
        ],
        "their leases end, and the steps are tried again",
        command="lucius services --workers",
        service=view.service,
    )
