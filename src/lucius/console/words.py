"""How values read on a page: instants, durations, states, JSON. Filters of the templates."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from markupsafe import Markup, escape

from lucius.api.explain import instant
from lucius.core.printable import printable, printable_json, printable_lines

_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
TONES: Final = {
    "SUCCEEDED": "good",
    "DONE": "good",
    "COMMITTED": "good",
    "FAILED_FINAL": "bad",
    "ABORTED": "bad",
    "FAILED_RETRY": "warn",
    "CANCELLED": "off",
    "CANCELLING": "warn",
    "PAUSED": "warn",
    "PAUSING": "warn",
    "IN_PROGRESS": "busy",
}


def moment(value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value)


def duration(span: timedelta | float | None) -> str:
    """With two figures or so: `340 ms`, `2.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if span is None:
        return ""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if seconds < 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return _in_two_units(round(seconds))


def _in_two_units(seconds: int) -> str:
    for index, (unit, size) in enumerate(_UNITS):
        if seconds >= size:
            first = f"{seconds // size} {unit}"
            if index + 1 == len(_UNITS):
                return first
            smaller, smaller_size = _UNITS[index + 1]
            rest = seconds % size // smaller_size
            return f"{first} {rest} {smaller}" if rest else first
    return "0 s"


def rough(span: timedelta) -> str:
    """As `duration`, but from ten minutes on in one unit, and from one second on without parts of it."""
    seconds = round(span.total_seconds())
    for unit, size in _UNITS[:-1]:
        if seconds >= 10 * size or (size > 60 and seconds >= 2 * size):
            return f"{seconds // size} {unit}"
    return _in_two_units(seconds)


def ago(value: Any, now: datetime) -> Markup:
    """How long ago, or in how long; the instant itself is in its title."""
    at = moment(value)
    if at is None:
        return Markup("")
    span = now - at
    text = f"{rough(span)} ago" if span >= timedelta(0) else f"in {rough(-span)}"
    if abs(span) < timedelta(seconds=1):
        text = "now"
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(instant(at), text)


def clock(value: Any) -> Markup:
    """The instant, to the millisecond, in UTC."""
    at = moment(value)
    if at is None:
        return Markup("")
    text = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"
    return Markup('<time datetime="{}">{}</time>').format(instant(at), text)


def pretty(value: Any) -> Markup:
    """JSON on several lines, with nothing in it that could reorder them."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return escape(printable_json(text))


def compact(value: Any) -> Markup:
    """JSON on one line."""
    return escape(printable_json(json.dumps(value, ensure_ascii=False, default=str)))


def reference(value: Any) -> str:
    """The URI of a reference that has no more than one."""
    if isinstance(value, dict) and set(value) == {"uri"}:
        value = value["uri"]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def coded(text: str) -> Markup:
    """Our own prose: what stands between backticks is code."""
    parts = printable_lines(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )


def lines(values: list[str]) -> Markup:
    """Each on a line of its own."""
    return Markup("<br>").join(printable(value) for value in values)


def state(value: str) -> str:
    """As a person says it."""
    return value.replace("_", " ").lower()


def tone(value: str) -> str:
    return TONES.get(value, "idle")


def number(value: int) -> str:
    return f"{value:,}"


FILTERS: Final = {
    "ago": ago,
    "clock": clock,
    "coded": coded,
    "compact": compact,
    "duration": duration,
    "lines": lines,
    "number": number,
    "pretty": pretty,
    "reference": reference,
    "state": state,
    "tone": tone,
}
