"""What every order of an operator may say: who gives it, and why."""

from collections.abc import Mapping
from typing import Any, Final

from lucius.api.body import field_problem
from lucius.api.context import Caller
from lucius.telemetry.redaction import redacted

MAX_REASON: Final = 500
REASON: Final[dict[str, Any]] = {
    "reason": {
        "type": ["string", "null"],
        "maxLength": MAX_REASON,
        "description": "Why: events and `lucius why` show it, with the caller's name",
    }
}


def said_by(caller: Caller, body: Mapping[str, Any]) -> dict[str, str]:
    """Who gives an order, and why: what its event shows."""
    reason = reason_in(body)
    return {"by": caller.known_as} | ({"reason": reason} if reason is not None else {})


def reason_in(body: Mapping[str, Any]) -> str | None:
    """Why the order is given, if the body says so. What looks like a secret in it is left out."""
    value = body.get("reason")
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_REASON:
        raise field_problem("/reason", f"must be a text of at most {MAX_REASON} characters")
    return redacted(value.strip()) or None
