"""Services with their workers, and what waits for them."""

from typing import Annotated

from pydantic import Field

from lucius.contract.models.base import AT, JOB_ID, LATER, Instant, JsonObject, View, words
from lucius.contract.models.control import OrderBody
from lucius.contract.models.jobs import (
    AnyMode,
    AnyOrdered,
    Lane,
    MaxAttempts,
    Stage,
    StepId,
    StepService,
    StepType,
)

# Protocols, as the API shows them.


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
        description="The newest change is not in force; `lucius why` says the fault",
        examples=[None],
    )
    protocols: list[ProtocolView] = Field(description="The protocols in force")


# Health and settings of the process that answers.


class HealthView(View):
    """The process is alive."""

    status: Annotated[str, words("ok")] = Field(description="The process is alive", examples=["ok"])


class ReadinessView(View):
    """Operators read of every dependency why it is not well; others see which one."""

    status: Annotated[str, words("ready")] = Field(
        description="All that it needs is well", examples=["ready"]
    )
    checks: dict[str, str] = Field(
        description="Every dependency, and whether it is well: `ok`, `failed` or `no answer in time`",
        examples=[{"ledger": "ok", "bus": "ok"}],
    )
    warnings: dict[str, str] = Field(
        description="What is wrong without making it unready, by part: it goes on with what was in force"
        " before",
        examples=[{}],
    )


class SettingView(View):
    """One setting as it is in force."""

    name: str = Field(description="The environment variable", examples=["LUCIUS_MAX_ATTEMPTS"])
    value: str = Field(description="The value in force; a secret is masked", examples=["3"])
    source: str = Field(description="Where the value comes from", examples=["default"])
    about: str = Field(description="What the setting does", examples=["Attempts of each step"])


class SettingsView(View):
    """The settings of the process that answers."""

    version: str = Field(description="The version of LUCIUS that answers", examples=["0.9.0"])
    settings: list[SettingView] = Field(description="Every setting")
    warnings: list[str] = Field(description="Variables that are set and do nothing", examples=[[]])


ServiceName = Annotated[str, Field(description="The name of the service", examples=["ocr"])]


class BacklogRowView(View):
    """What one service has to do on one lane, in one mode."""

    service: ServiceName
    mode: AnyMode = Field(description="The mode of these directives", examples=["DEFAULT"])
    lane: Lane
    held: int = Field(description="Directives that wait in the ledger", examples=[20])
    released: int = Field(description="Directives that are out and not acknowledged", examples=[4])
    in_progress: int = Field(description="Steps at work", examples=[8])
    window: int = Field(
        description="How many directives may wait at the service, whatever the lane", examples=[16]
    )
    oldest_seconds: float = Field(
        description="For how long the longest of those on this lane has waited for its ACK",
        examples=[0.4],
    )


class BacklogView(View):
    """What waits and runs."""

    backlog: list[BacklogRowView] = Field(
        description="What waits and runs, by service, mode and lane"
    )


class ServiceBacklogView(View):
    """One number, for autoscalers."""

    backlog: int = Field(description="Held, released and in progress, together", examples=[32])


class PauseView(View):
    """Who paused a service, when, and why if they said so. A caller bound to tenants reads only when."""

    at: Instant = Field(description="When it was paused", examples=[AT])
    by: str | None = Field(description="Who paused it", examples=["night-watch (key 3f2a9c)"])
    reason: str | None = Field(description="Why, if they said so", examples=["its disk is full"])


class WorkerView(View):
    """A worker that was seen: it has pulled, or has replied."""

    worker_id: str = Field(description="What the worker calls itself", examples=["worker-1"])
    last_seen: Instant = Field(description="When it was seen last", examples=[LATER])
    running: int = Field(description="Steps at work", examples=[8])
    slots: int | None = Field(
        description="How many steps the worker takes at once, if it says so", examples=[8]
    )
    version: str | None = Field(
        description="Which release of the service it runs, if it says so", examples=["1.4.0"]
    )


class DropWorkerBody(OrderBody):
    """Which worker is gone."""

    worker_id: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="What the worker calls itself: `lucius services --workers` lists them",
        examples=["worker-1"],
    )


class DroppedWorkerView(View):
    """What a worker that is gone had in hand."""

    worker_id: str = Field(description="What the worker calls itself", examples=["worker-1"])
    dropped: int = Field(description="Jobs whose step is tried again", examples=[3])
    jobs: list[str] = Field(description="The first hundred of them", examples=[[JOB_ID]])


class ServiceView(View):
    """A service. Callers bound to tenants read neither numbers nor workers: they belong to all tenants."""

    service: ServiceName
    step_types: list[str] = Field(
        description="The step types that protocols have it do", examples=[["OCR"]]
    )
    subscribed: bool = Field(
        description="Whether the bus keeps its directives for it", examples=[True]
    )
    here: bool = Field(
        False, description="Whether the server that answers runs it itself", examples=[True]
    )
    paused: PauseView | None = Field(
        description="Who paused it, when and why; null if it is not paused", examples=[None]
    )
    first_seen: Instant | None = Field(
        description="When a worker of it was seen first", examples=[AT]
    )
    last_seen: Instant | None = Field(description="When it was seen last", examples=[LATER])
    refused_at: Instant | None = Field(
        description="When a reply was refused for its callback token, if none was accepted since",
        examples=[None],
    )
    waiting: int | None = Field(description="Directives that are held or sent", examples=[12])
    sent: int | None = Field(description="Those of them that are with the bus", examples=[4])
    running: int | None = Field(description="Steps at work", examples=[8])
    oldest_sent_at: Instant | None = Field(
        description="Since when the oldest directive is with the bus", examples=[AT]
    )
    rate_per_minute: float | None = Field(
        description="Attempts that ended a minute, lately", examples=[48.0]
    )
    failure_rate: float | None = Field(
        description="The part of them that failed, from 0 to 1", examples=[0.02]
    )
    workers: list[WorkerView] = Field(description="The workers that were seen")


class ServicesView(View):
    """All services."""

    services: list[ServiceView] = Field(description="The services, by name")


class ServiceOrderView(View):
    """What became of an order for a service."""

    service: ServiceName
    outcome: AnyOrdered = Field(
        description="`applied`, or `already` if that held", examples=["applied"]
    )
