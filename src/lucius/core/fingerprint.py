"""What failures have in common: step, code, what the message says without its numbers, and the place.

Two failures with the same fingerprint are one group. It is a pure function of what a job stores, so no
ledger keeps it.
"""

import re
from hashlib import sha256
from typing import Final

from lucius.core.job import Fault, Job, Step
from lucius.core.record import record
from lucius.core.states import TERMINAL_STEP, StepState

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
