"""What every order of an operator may say: who gives it, and why."""

from typing import Annotated

from fastapi import Body

from lucius.api.context import Caller
from lucius.contract.models.base import MayMiss
from lucius.contract.models.control import OrderBody
from lucius.telemetry.redaction import redacted

AnyOrder = Annotated[MayMiss[OrderBody], Body()]
"""The body of an order that takes no more than a reason."""


def said_by(caller: Caller, body: OrderBody | None) -> dict[str, str]:
    """Who gives an order, and why: what its event shows."""
    reason = reason_in(body)
    return {"by": caller.known_as} | ({"reason": reason} if reason is not None else {})


def reason_in(body: OrderBody | None) -> str | None:
    """Why the order is given, if the body says so. What looks like a secret in it is left out."""
    if body is None or body.reason is None:
        return None
    return redacted(body.reason.strip()) or None
