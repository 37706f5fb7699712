"""Protocols, as the API shows them."""

from pydantic import Field

from lucius.contract.models.base import JsonObject, View
from lucius.contract.models.jobs import MaxAttempts, Stage, StepId, StepService, StepType


class ProtocolStepView(View):
    """One step of a protocol."""

    stepId: StepId
    step_id: StepId
    step_type: StepType
    service: StepService
    stage: Stage
    max_attempts: MaxAttempts
    ack_timeout_seconds: float = Field(description="How long the ACK may take", examples=[30.0])
    lease_seconds: float = Field(
        description="How long the lease holds after the ACK and after each heartbeat",
        examples=[900.0],
    )
    payload_schema: JsonObject | None = Field(
        description="The JSON schema of the step's payload; null: any object",
        examples=[{"type": "object"}],
    )


class ProtocolView(View):
    """One protocol: the steps that jobs of its request type have."""

    protocol_id: str = Field(
        description="The id of the protocol, and its version", examples=["ocr_v1"]
    )
    request_type: str = Field(
        description="The request type, which names a protocol", examples=["OCR"]
    )
    description: str = Field(
        description="What the protocol is for", examples=["The text of a document"]
    )
    steps: list[ProtocolStepView] = Field(description="The steps, in their order")


class ProtocolsView(View):
    """The protocols in force."""

    version: str = Field(
        description="Which reading of the configuration is in force", examples=["3f9a0c"]
    )
    warning: str | None = Field(
        description="The newest change is not in force; the log says why", examples=[None]
    )
    protocols: list[ProtocolView] = Field(description="The protocols in force")
