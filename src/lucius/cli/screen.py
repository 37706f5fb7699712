"""How jobs look on a terminal: tables, one line an event, and live progress."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lucius.cli.session import console

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from lucius.api.shapes import EventShape, JobShape, StepShape

COLOURS = {
    "SUCCEEDED": "green",
    "FAILED_FINAL": "red",
    "FAILED_RETRY": "yellow",
    "CANCELLED": "magenta",
    "CANCELLING": "magenta",
    "PAUSED": "yellow",
    "PAUSING": "yellow",
    "IN_PROGRESS": "cyan",
    "PENDING": "dim",
}
MARKS = {"SUCCEEDED": "✔", "FAILED_FINAL": "✘", "CANCELLED": "■", "PENDING": "·"}


def state_text(state: str) -> str:
    colour = COLOURS.get(state, "blue")
    return f"[{colour}]{state}[/{colour}]"


def show_job(job: "JobShape") -> None:
    out = console()
    out.print(heading(job))
    out.print(step_table(job.get("steps", [])))
    facts = {
        "request": f"{job['request_type']} ({job['protocol_id']})",
        "tenant": f"{job['tenant_id']}, mode {job['mode']}, lane {job['lane']}",
        "created": job["created_at"],
        "completed": job["completed_at"],
        "redrive of": job["redrive_of"],
        "redriven by": job["redriven_by"],
        "error": job["error_code"] and f"{job['error_code']}: {job['error_message']}",
        "output": reference_text(job["final_output"]),
    }
    for name, value in facts.items():
        if value:
            out.print(f"[dim]{name:>12}[/dim]  ", end="")
            out.print(str(value), markup=False)


def heading(job: "JobShape") -> str:
    from rich.markup import escape

    return (
        f"[bold]{escape(job['jobId'])}[/bold]  {state_text(job['state'])}"
        f"  [dim]{escape(job['explanation'])}[/dim]"
    )


def step_table(steps: "Sequence[StepShape]") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("", "step", "service", "state", "attempt", "took", "note"):
        table.add_column(name, style="dim" if name == "note" else None)
    for step in steps:
        attempt = f"{step['attempt_no']}/{step['max_attempts']}" if step["attempt_no"] else ""
        table.add_row(
            MARKS.get(step["state"], "→"),
            escape(step["step_id"]),
            escape(step["service"]),
            state_text(step["state"]),
            attempt,
            _took(step),
            escape(_note(step)),
        )
    return table


def _note(step: "StepShape") -> str:
    if step["retry_at"]:
        return f"{step['last_error_code']}, again at {step['retry_at']}"
    if step["last_error_code"]:
        return f"{step['last_error_code']}: {step['last_error_message']}"
    return reference_text(step["result_ref"])


def _took(step: "StepShape") -> str:
    outbox = step["outbox"]
    begun = outbox["created_at"] if outbox else None
    if not begun or step["state"] == "PENDING":
        return ""
    end = _instant(step["completed_at"]) if step["completed_at"] else datetime.now(UTC)
    seconds = max((end - _instant(begun)).total_seconds(), 0)
    return f"{seconds:.2f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def reference_text(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("uri"), str):
        return str(value["uri"])
    return "" if value is None else str(value)


def event_line(event: "EventShape") -> str:
    """The moves of jobs and steps; outbox and executions are in the JSON."""
    moves = [move for move in event["moves"] if move.startswith(("job ", "step "))]
    attempt = f" (attempt {event['attempt_no']})" if event["attempt_no"] else ""
    what = ", ".join(moves) or event["type"]
    note = ""
    if event["data"]:
        note = "  " + ", ".join(f"{key}={value}" for key, value in event["data"].items())
    return f"{event['created_at']}  {event['type']:<17}  {what}{attempt}{note}"


def job_table(jobs: "Sequence[JobShape]") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("job", "state", "type", "tenant", "created", "why"):
        table.add_column(name, no_wrap=name in ("job", "state", "created"))
    for job in jobs:
        table.add_row(
            escape(job["jobId"]),
            state_text(job["state"]),
            escape(job["request_type"]),
            escape(job["tenant_id"]),
            job["created_at"][:19] + "Z",
            escape(job["explanation"]),
        )
    return table


def progress(job: "JobShape") -> "RenderableType":
    """What live progress shows: the heading above the steps."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text.from_markup(heading(job)), step_table(job.get("steps", [])))
