"""Services with their workers, and what waits for them."""

from typing import Annotated

from pydantic import Field

from lucius.contract.models.base import AT, LATER, Instant, View
from lucius.contract.models.jobs import AnyMode, AnyOrdered, Lane

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


class ServiceView(View):
    """A service. Callers bound to tenants read neither numbers nor workers: they belong to all tenants."""

    service: ServiceName
    step_types: list[str] = Field(
        description="The step types that protocols have it do", examples=[["OCR"]]
    )
    subscribed: bool = Field(
        description="Whether the bus keeps its directives for it", examples=[True]
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
