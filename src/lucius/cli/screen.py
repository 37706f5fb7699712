"""How jobs look on a terminal: tables, one line an event, and live progress."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from lucius.core.text import event_name, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


T = TypeVar("T")
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


def printed(value: T) -> T:
    """The value with the control characters in all its texts escaped, so that none steers a terminal."""
    if isinstance(value, str):
        return cast(T, printable(value))
    if isinstance(value, dict):
        return cast(T, {printed(name): printed(item) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return cast(T, type(value)(map(printed, value)))
    return value


def state_text(state: str) -> str:
    colour = COLOURS.get(state, "blue")
    return f"[{colour}]{state}[/{colour}]"


def coloured(state: str, width: int = 0) -> str:
    """A state for a plain line. click drops the colour where there is no terminal."""
    colour = COLOURS.get(state, "blue")
    text = f"{state:<{width}}"
    return click.style(text, dim=True) if colour == "dim" else click.style(text, fg=colour)


def show_job(job: dict[str, Any]) -> None:
    click.echo(f"{click.style(job['jobId'], bold=True)}  {coloured(job['state'])}")
    click.echo(job["explanation"])
    click.echo("")
    show_steps(job.get("steps", []))
    click.echo("")
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
    for each in job.get("webhooks", []):
        error = f": {each['error']}" if each["error"] else ""
        tries = "1 try" if each["tries"] == 1 else f"{each['tries']} tries"
        facts[f"webhook {each['host']}"] = f"{tries}{error}, again {moment(each['next_at'])}"
    for name, value in facts.items():
        if value:
            click.echo(f"{click.style(f'{name:>12}', dim=True)}  {value}")


def show_steps(steps: Sequence[dict[str, Any]]) -> None:
    """Print one line a step. Long texts come last and are not cut, so that they can be copied."""
    rows = [
        (step["step_id"], step["service"], step["state"], _attempt(step), _took(step))
        for step in steps
    ]
    widths = column_widths(("step", "service", "state", "attempt", "took"), rows)
    names = zip(("step", "service", "state", "attempt", "took"), widths, strict=True)
    head = "  ".join(f"{name:<{width}}" for name, width in names)
    click.secho(f"   {head}  note", bold=True)
    for step, row in zip(steps, rows, strict=True):
        cells = [f"{text:<{width}}" for text, width in zip(row, widths, strict=True)]
        cells[2] = coloured(step["state"], widths[2])
        mark = MARKS.get(step["state"], "→")
        click.echo(f"{mark}  {'  '.join(cells)}  {_note(step)}".rstrip())


def column_widths(names: "Sequence[str]", rows: "Sequence[Sequence[str]]") -> list[int]:
    columns = zip(names, *rows, strict=True)
    return [max(map(len, column)) for column in columns]


def heading(job: dict[str, Any]) -> str:
    from rich.markup import escape

    return f"{state_text(job['state'])}  [dim]{escape(job['explanation'])}[/dim]"


def step_table(steps: Sequence[dict[str, Any]]) -> "Table":
    """The steps for live progress, where lines that are too long are cut."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("", "step", "state", "attempt", "took", "note"):
        style = "dim" if name == "note" else None
        table.add_column(name, style=style, no_wrap=True, min_width=len(name))
    for step in steps:
        table.add_row(
            MARKS.get(step["state"], "→"),
            escape(step["step_id"]),
            state_text(step["state"]),
            _attempt(step),
            _took(step),
            escape(_problem(step)),
        )
    return table


def _attempt(step: dict[str, Any]) -> str:
    return f"{step['attempt_no']}/{step['max_attempts']}" if step["attempt_no"] else ""


def _problem(step: dict[str, Any]) -> str:
    if step["retry_at"]:
        return f"{step['last_error_code']}, again at {step['retry_at'][11:19]}Z"
    if step["last_error_code"]:
        return f"{step['last_error_code']}: {step['last_error_message']}"
    return ""


def _note(step: dict[str, Any]) -> str:
    return _problem(step) or reference_text(step["result_ref"])


def _took(step: dict[str, Any]) -> str:
    """Since a worker took it: what it waited before does not count."""
    at_work = step["state"] == "IN_PROGRESS"
    return span(step["started_at"], step["completed_at"]) if step["completed_at"] or at_work else ""


def span(begun: str | None, ended: str | None) -> str:
    """How long it took, or has taken by now."""
    if not begun:
        return ""
    end = _instant(ended) if ended else datetime.now(UTC)
    seconds = max((end - _instant(begun)).total_seconds(), 0)
    return f"{seconds:.2f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def show_attempts(attempts: Sequence[dict[str, Any]]) -> None:
    """Every attempt of every step: when it went out, who took it, how long it ran and how it ended."""
    names = ("step", "attempt", "sent", "waited", "ran", "worker", "ended")
    rows = [
        (
            each["step_id"],
            str(each["attempt_no"]),
            each["leased_at"][:19] + "Z",
            span(each["leased_at"], each["started_at"] or each["finished_at"]),
            span(each["started_at"], each["finished_at"]),
            each["lease_owner"] or "",
            each["reason"] or each["state"],
        )
        for each in attempts
        if each["attempt_no"]
    ]
    widths = column_widths(names, rows)
    for number, row in enumerate((names, *rows) if rows else ()):
        line = "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
        click.secho(f"   {line}".rstrip(), bold=number == 0)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def reference_text(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("uri"), str):
        return str(value["uri"])
    return "" if value is None else str(value)


def event_line(event: dict[str, Any]) -> str:
    """One event with the moves of its job and steps. `--json` also has those of outbox and executions."""
    event = printed(event)
    attempt = f" (attempt {event['attempt_no']})" if event["attempt_no"] else ""
    what = _moves(event["moves"]) or event["stepId"] or ""
    said = [
        f"{key}={value}" for key, value in (event["payload"] or {}).items() if key != "timestamp"
    ]
    note = f"  {', '.join(said)}" if said else ""
    at, kind = event["created_at"], event_name(event["event_type"], event["moves"])
    return f"{at[:23] + 'Z' if len(at) > 24 else at}  {kind:<19}  {what}{attempt}{note}"


def _moves(moves: "Sequence[str]") -> str:
    """The moves joined: `step ocr A->B` and `step ocr B->C` become `step ocr A->B->C`."""
    chains: dict[str, str] = {}
    for move in moves:
        subject, _, arrow = move.rpartition(" ")
        source, _, target = arrow.partition("->")
        if not subject.startswith(("job", "step")):
            continue
        chain = chains.get(subject)
        continued = chain is not None and chain.endswith(f"->{source}")
        chains[subject] = f"{chain}->{target}" if continued else arrow
    return ", ".join(f"{subject} {chain}" for subject, chain in chains.items())


def show_jobs(jobs: Sequence[dict[str, Any]]) -> None:
    """Print one line a job, and below it why it is in its state, unless it succeeded."""
    rows = [
        (job["jobId"], job["state"], age(job["created_at"]), job["tenant_id"], job["request_type"])
        for job in jobs
    ]
    names = ("job", "state", "age", "tenant", "type")
    widths = column_widths(names, rows)
    head = "  ".join(f"{name:<{width}}" for name, width in zip(names, widths, strict=True))
    click.secho(head.rstrip(), bold=True)
    for job, row in zip(jobs, rows, strict=True):
        cells = [f"{text:<{width}}" for text, width in zip(row, widths, strict=True)]
        cells[1] = coloured(job["state"], widths[1])
        click.echo("  ".join(cells).rstrip())
        if job["state"] != "SUCCEEDED":
            click.secho(f"  {job['explanation']}", dim=True)


def age(created_at: str) -> str:
    return _short((datetime.now(UTC) - _instant(created_at)).total_seconds())


def moment(text: str) -> str:
    """An instant to the second, and how far away it is."""
    at = _instant(text)
    away = (at - datetime.now(UTC)).total_seconds()
    near = f"in {_short(away)}" if away > 0 else f"{_short(-away)} ago"
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} ({near})"


def _short(length: float) -> str:
    seconds = int(max(length, 0))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def progress(job: dict[str, Any]) -> "RenderableType":
    """What live progress shows: the heading above the steps."""
    from rich.console import Group
    from rich.text import Text

    job = printed(job)
    return Group(Text.from_markup(heading(job)), step_table(job.get("steps", [])))
