"""Protocols, as the API shows them."""

from typing import Any

from typing_extensions import TypedDict


class ProtocolStepShape(TypedDict):
    stepId: str
    step_id: str
    step_type: str
    service: str
    stage: int
    max_attempts: int
    ack_timeout_seconds: float
    lease_seconds: float
    payload_schema: dict[str, Any] | None


class ProtocolShape(TypedDict):
    protocol_id: str
    request_type: str
    description: str
    steps: list[ProtocolStepShape]


class ProtocolsShape(TypedDict):
    """`warning`: the newest change is not in force; the log says why."""

    version: str
    warning: str | None
    protocols: list[ProtocolShape]
