"""Whether a request fits every backend: the worst rows and the rendered directive of every step."""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from lucius.admission.faults import PAYLOAD_TOO_LARGE, Faults
from lucius.admission.rules import StepRule, step_payloads
from lucius.core.limits import (
    ENVELOPE_CHARACTERS,
    PROPERTY_CHARACTERS,
    directive_room,
    fits_property,
    utf16_length,
)
from lucius.core.plan import Json, StepPlan

_TOO_LONG: Final = f"is larger than {PROPERTY_CHARACTERS} characters of JSON"


def check_sizes(
    parts: dict[str, Any],
    payload: Json,
    steps: Sequence[tuple[StepPlan, StepRule]],
    max_payload: int,
    faults: Faults,
) -> None:
    """`parts`: what every directive carries besides its payload, by JSON pointer."""
    encoded = {at: orjson.dumps(value) for at, value in parts.items()}
    for at, text in encoded.items():
        if not fits_property(text):
            faults.add(PAYLOAD_TOO_LARGE, at, _TOO_LONG)
    whole = orjson.dumps(payload)
    if len(whole) > max_payload:
        faults.add(PAYLOAD_TOO_LARGE, "/payload", f"is larger than {max_payload} bytes")
    shared = sum(len(text) for text in encoded.values())
    if sum(utf16_length(text) for text in (whole, *encoded.values())) > ENVELOPE_CHARACTERS:
        faults.add(PAYLOAD_TOO_LARGE, "", f"is larger than {ENVELOPE_CHARACTERS} characters")
    _check_steps(payload, steps, shared, faults)


def _check_steps(
    payload: Json, steps: Sequence[tuple[StepPlan, StepRule]], shared: int, faults: Faults
) -> None:
    stages = [plan.stage for plan, _ in steps]
    rules = [rule for _, rule in steps]
    parts = step_payloads(payload, rules, single=len(rules) == 1)
    for stage, (_, at, value) in zip(stages, parts, strict=True):
        text = orjson.dumps(value)
        if not fits_property(text):
            faults.add(PAYLOAD_TOO_LARGE, at, _TOO_LONG)
        room = directive_room(sum(1 for other in stages if other < stage))
        if shared + len(text) > room:
            reason = f"makes a directive of more than {room} bytes with the references beside it"
            faults.add(PAYLOAD_TOO_LARGE, at, reason)
