"""The Grafana dashboard `deploy/grafana/lucius.json`: rows of panels, each with its PromQL."""

import json
from typing import Any, Final, NamedTuple

WIDTH: Final = 24
HEIGHT: Final = 8
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    title: str
    queries: tuple[tuple[str, str], ...]
    """PromQL and the legend of its series."""
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    about: str = ""


def _quantiles(metric: str, label: str) -> tuple[tuple[str, str], ...]:
    rate = f"sum by (le, {label}) (rate({metric}_bucket[$__rate_interval]))"
    return tuple(
        (f"histogram_quantile({q}, {rate})", f"{{{{{label}}}}} p{q * 100:g}") for q in (0.5, 0.99)
    )


def _rate(selector: str, *labels: str) -> tuple[tuple[str, str], ...]:
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return ((f"sum by ({', '.join(labels)}) (rate({selector}[$__rate_interval]))", legend),)


WELL: Final = (
    Panel(
        "Dependencies",
        (
            ("min by (dependency) (lucius_dependency_up)", "{{dependency}}"),
            ("min(lucius_config_valid)", "configuration"),
        ),
        width=4,
        kind="stat",
        about="1: its readiness check passes; the newest configuration is valid and in force.",
    ),
    Panel(
        "Longest overdue",
        (("max(lucius_overdue_seconds)", "overdue"),),
        "s",
        4,
        "stat",
        "Jobs that are due and do not move. More than a minute is trouble.",
    ),
    Panel(
        "In the DLQ, unreadable",
        (
            ("max(lucius_dlq_jobs)", "jobs"),
            ("max(lucius_unreadable_jobs)", "unreadable"),
            ("max(lucius_unrestored_outputs)", "outputs not restored"),
        ),
        width=4,
        kind="stat",
        about="Jobs that wait for a decision, jobs whose stored rows cannot be read, and outputs that"
        " a loss of power took and that cannot be written again.",
    ),
    Panel("Live jobs", (("sum(lucius_inflight_jobs)", "jobs"),), width=4, kind="stat"),
    Panel(
        "Beyond SLA, last day",
        (("sum by (sla) (increase(lucius_escalations_total[1d]))", "{{sla}}"),),
        width=4,
        kind="stat",
    ),
    Panel(
        "Incidents, last hour",
        (("sum by (incident) (increase(lucius_incidents_total[1h]))", "{{incident}}"),),
        width=4,
        kind="stat",
        about="Outages, replies set aside, failed tasks, stuck ticks, directives that nobody takes.",
    ),
)
JOBS: Final = (
    Panel(
        "Jobs accepted and ended",
        (
            ("sum(rate(lucius_jobs_accepted_total[$__rate_interval]))", "accepted"),
            *_rate("lucius_jobs_ended_total", "state"),
        ),
        "ops",
    ),
    Panel("Time of a job", _quantiles("lucius_job_seconds", "request_type"), "s"),
    Panel("Busiest tenants", (("topk(10, lucius_inflight_jobs)", "{{tenant_id}}"),)),
)
STEPS: Final = (
    Panel("Time of a step", _quantiles("lucius_step_seconds", "step_type"), "s"),
    Panel(
        "Attempts that failed", _rate("lucius_attempts_failed_total", "service", "reason"), "ops"
    ),
    Panel("Retries by track", _rate("lucius_retries_total", "track"), "ops"),
)
DISPATCH: Final = (
    Panel(
        "Backlog",
        (("sum by (service, stage) (lucius_backlog)", "{{service}} {{stage}}"),),
        about="Scale a service on the sum of the three stages, never on the queue alone.",
    ),
    Panel("From wish to ACK", _quantiles("lucius_dispatch_lag_seconds", "service"), "s"),
    Panel(
        "From release to ACK",
        _quantiles("lucius_ack_seconds", "service"),
        "s",
        about="Near the ACK timeout, a service is about to be taken for silent.",
    ),
    Panel("Window by service", (("sum by (service) (lucius_window)", "{{service}}"),)),
    Panel(
        "Replies that were not applied",
        _rate('lucius_replies_total{outcome!="applied"}', "kind", "outcome"),
        "ops",
    ),
    Panel("Moves that time caused", _rate("lucius_sweeper_actions_total", "move"), "ops"),
)
SURFACE: Final = (
    Panel("Requests", _rate("lucius_http_requests_total", "route", "status"), "ops"),
    Panel("Time to answer", _quantiles("lucius_http_request_seconds", "route"), "s"),
    Panel(
        "Refused and failed",
        (
            *_rate('lucius_http_requests_total{status=~"429|5.."}', "route", "status"),
            *_rate("lucius_connections_refused_total", "code"),
        ),
        "ops",
    ),
    Panel(
        "Event loop held up",
        (
            (
                "sum by (service) (increase(lucius_loop_blocked_seconds_sum[$__rate_interval]))",
                "{{service}}",
            ),
        ),
        "s",
        about="Nothing else is done meanwhile. The log names file and line; isolate the service.",
    ),
    Panel("Effects given up", _rate('lucius_effects_settled_total{performed="false"}', "effect")),
    Panel(
        "CPU",
        (
            (
                "sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]))",
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        "Memory",
        (("sum by (instance) (process_resident_memory_bytes)", "{{instance}}"),),
        "bytes",
    ),
)
STORAGE: Final = (
    Panel("Requests to Azure tables", _rate("lucius_table_requests_total", "kind"), "ops"),
    Panel(
        "Turned away by Azure tables",
        _rate("lucius_table_throttled_total", "status"),
        "ops",
        about="Each is tried again later. If it goes on, the account is at its limit.",
    ),
)
TEMPORAL: Final = (
    Panel("Workflow starts", _rate("lucius_workflow_starts_total", "outcome"), "ops"),
    Panel("Workflows ended", _rate("lucius_workflows_ended_total", "state"), "ops"),
    Panel("Signals", _rate("lucius_workflow_signals_total", "signal", "outcome"), "ops"),
    Panel(
        "Signal lag",
        _quantiles("lucius_workflow_signal_lag_seconds", "signal"),
        "s",
        about="An ACK is told a second late on purpose: mostly a RESULT comes meanwhile and says it too.",
    ),
    Panel(
        "Questions to the invoker",
        _rate("lucius_workflow_asks_total", "activity", "outcome"),
        "ops",
    ),
    Panel(
        "Asked again, and timers",
        (
            *_rate("lucius_workflow_retries_total", "activity"),
            *_rate("lucius_workflow_timeouts_total", "outcome"),
        ),
        "ops",
        about="Questions that had no answer, and timers of workflows that fired.",
    ),
)
SERVICES: Final = (
    Panel(
        "Attempts of services apart",
        _rate("lucius_service_attempts_total", "service", "status"),
        "ops",
        about="Of processes started with `lucius service run --health-port`.",
    ),
    Panel("How long attempts take", _quantiles("lucius_service_attempt_seconds", "service"), "s"),
    Panel(
        "Slots",
        (("sum by (service, state) (lucius_service_slots)", "{{service}} {{state}}"),),
        "short",
    ),
)
ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Is it well?": WELL,
    "Jobs": JOBS,
    "Steps": STEPS,
    "Dispatch": DISPATCH,
    "HTTP and process": SURFACE,
    "Jobs on Temporal": TEMPORAL,
    "Storage on Azure": STORAGE,
    "Services apart": SERVICES,
}


def dashboard() -> dict[str, Any]:
    return {
        "uid": "lucius",
        "title": "LUCIUS",
        "schemaVersion": 39,
        "tags": ["lucius"],
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Data source", "type": "datasource",
                      "query": "prometheus"}]
        },
        "panels": _panels(),
    }  # fmt: skip


def dashboard_page() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for title, panels in ROWS.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        made.append({"id": len(made) + 1, "type": "row", "title": title, "gridPos": place})
        y, x = y + 1, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT
            made.append(_panel(panel, len(made) + 1, x, y))
            x += panel.width
        y += HEIGHT
    return made


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }
