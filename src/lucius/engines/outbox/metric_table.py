"""Every metric of the engine: its name, what it says, its labels. Nothing is counted here."""

from collections.abc import Mapping
from typing import Final

from lucius import __version__
from lucius.core.effects import Outcome
from lucius.core.inputs import AckReceived, HeartbeatReceived, LeaseReturned, ResultReceived
from lucius.core.states import AbortReason
from lucius.engines.outbox.observer import Incident
from lucius.telemetry.instruments import Count, Distribution, Instruments, Level

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
        self.window = Level("lucius_window", "Size of the dispatch window", ("service", "lane"))
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
