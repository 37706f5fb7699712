"""Foreign text made safe to print: what could steer a terminal or forge a line is shown as an escape.

Whoever writes to a terminal or a text log calls `printable` on every text that came from outside.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from lucius.core.job import TERMINAL_STEP, Fault, Job, Step, StepState
from lucius.core.record import record

# What failures have in common: step, code, what the message says without its numbers, and the place.
#
# Two failures with the same fingerprint are one group. It is a pure function of what a job stores, so no
# ledger keeps it.

MAX_MESSAGE: Final = 300
_PLACE: Final = re.compile(r" \(at ([^()\s]+:\d+)\)$")
"""Where the kit says the service's own code was."""
_VARIES: Final = (
    (re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+"), "<uri>"),
    (re.compile(r"(?<![\w/.-])/[\w.@%+-]+(?:/[\w.@%+-]*)+"), "<path>"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "<text>"),
    (re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z_])[\w-]{8,}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


@record
class StepFailure:
    """The last failure of a step, and the group that it belongs to."""

    group: str
    step_id: str
    service: str
    code: str
    message: str
    place: str | None


def normal(message: str) -> str:
    """The message without what differs from job to job."""
    text = _PLACE.sub("", message)[:MAX_MESSAGE]
    for varies, mark in _VARIES:
        text = varies.sub(mark, text)
    return text.strip()


def place_in(message: str) -> str | None:
    """File and line of the service's code, where the kit reported them."""
    found = _PLACE.search(message)
    return found[1] if found is not None else None


def fingerprint(step_id: str, fault: Fault) -> str:
    parts = (step_id, fault.code, normal(fault.message), place_in(fault.message) or "")
    return sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:12]


def failure_of(step_id: str, service: str, fault: Fault) -> StepFailure:
    group, place = fingerprint(step_id, fault), place_in(fault.message)
    return StepFailure(group, step_id, service, fault.code, fault.message, place)


def failures_in(job: Job) -> list[StepFailure]:
    """Of each step that failed and has not succeeded since."""
    pairs = zip(job.plan.steps, job.steps, strict=True)
    return [
        failure_of(planned.step_id, planned.service, step.fault)
        for planned, step in pairs
        if step.fault is not None and _failed(step)
    ]


def _failed(step: Step) -> bool:
    return step.state is StepState.FAILED_FINAL or (
        bool(step.used) and step.state not in TERMINAL_STEP
    )


_UNPRINTABLE: Final = (
    "\x7f-\x9f"  # DEL and C1
    "\xad\u200b\u2060-\u2064\ufeff\ufff9-\ufffb"  # invisible
    "\u061c\u180e\u200e\u200f\u202a-\u202e\u2066-\u206f"  # the direction of writing
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # lone surrogates, which no stream can encode
    "\U000e0000-\U000e007f"  # tags
)
_IN_TEXT: Final = re.compile(f"[\x00-\x1f{_UNPRINTABLE}]")
_IN_JSON: Final = re.compile(f"[{_UNPRINTABLE}]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would act on."""
    return text if text.isprintable() else _IN_TEXT.sub(_escape, text)


def printable_lines(text: str) -> str:
    """The same, for text of our own that has several lines."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """A JSON document with the same content: what JSON allows and a terminal would act on is escaped.

    The control characters below 0x20 are escaped by every JSON encoder; outside of strings they are
    the encoder's own line breaks.
    """
    return text if text.isascii() and "\x7f" not in text else _IN_JSON.sub(_json_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def event_name(kind: str, moves: Sequence[str]) -> str:
    """What happened, as a person says it: a tick ends what took too long, or what had to wait."""
    if kind != "tick":
        return kind.replace("_", " ")
    late = any(move.endswith(("->FAILED_RETRY", "->FAILED_FINAL")) for move in moves)
    return "timed out" if late else "time has come"
