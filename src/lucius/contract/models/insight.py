"""Causes, groups of failures and redrive plans."""

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from lucius.contract.causes import Severity
from lucius.contract.models.base import (
    AT,
    JOB_ID,
    LATER,
    LATER_WORDS,
    AnyWhole,
    Instant,
    JsonObject,
    View,
    plainly,
    words,
)
from lucius.contract.models.control import JobFilter, OrderBody
from lucius.contract.models.jobs import JobId
from lucius.contract.words import PlanState

MAX_FILTER: Final = 16_384
"""Characters of a plan's filter: it is stored, and read every second while the plan runs."""
AnyPlanState = Annotated[PlanState | str, LATER_WORDS, words(*PlanState)]
AnySeverity = Annotated[str, words(*(each.name for each in Severity))]


class EvidenceView(View):
    """One fact that led to a cause, and when it was so."""

    what: str = Field(
        description="What it is, in words", examples=["the last worker was seen at 10:00:00Z"]
    )
    at: Instant | None = Field(description="When it was so, if that is known", examples=[AT])


class NextView(View):
    """What happens by itself, and when, if that is known."""

    what: str = Field(
        description="What happens, in words",
        examples=["the attempt ends without an ACK, and is repeated"],
    )
    at: Instant | None = Field(description="When it will be so, if that is known", examples=[AT])


class ImpactView(View):
    """Whom a cause concerns, of what the caller may see."""

    jobs: int = Field(description="How many jobs", examples=[60])
    tenants: list[str] = Field(description="The first twenty of their tenants", examples=[["acme"]])
    tenant_count: int = Field(description="How many tenants", examples=[1])
    oldest_at: Instant | None = Field(
        description="Since when the oldest of them waits, if that is known", examples=[AT]
    )
    more: bool = Field(
        description="There are more than were looked at: the numbers are the least",
        examples=[False],
    )


class WhyView(View):
    """A cause. `cause` is stable; docs/reference/causes.md explains each."""

    cause: str = Field(
        description="The cause: a stable code with a page of its own", examples=["WORKERS_SILENT"]
    )
    severity: AnySeverity = Field(description="How bad it is", examples=["PROBLEM"])
    summary: str = Field(
        description="The cause in one sentence", examples=["the workers of ocr are silent"]
    )
    since: Instant | None = Field(
        description="Since when it is so, if that is known", examples=[AT]
    )
    evidence: list[EvidenceView] = Field(description="The facts that led to it")
    next: NextView = Field(description="What happens by itself, and when")
    command: str = Field(
        description="The one command that helps; empty if none is needed",
        examples=["lucius service run MODULE:NAME --url URL  # a service whose name is ocr"],
    )
    service: str | None = Field(
        description="The service that it is about, if it is about one", examples=["ocr"]
    )
    impact: ImpactView | None = Field(
        None, description="Whom it concerns; null where that is the job alone, or not known"
    )


class JobWhyView(WhyView):
    """Why a job is where it is."""

    jobId: JobId


class SystemWhyView(View):
    """What is wrong with the system."""

    causes: list[WhyView] = Field(description="What is wrong now, worst first")


class FailedWebhookView(View):
    """A webhook that was not delivered."""

    jobId: JobId
    tenant_id: str = Field(description="The tenant of the job", examples=["acme"])
    host: str = Field(
        description="The host of its address; the rest may be a secret", examples=["hooks.acme.org"]
    )
    tries: int = Field(description="How often it was tried", examples=[3])
    error: str = Field(
        description="Why the last try failed", examples=["no address: the name does not resolve"]
    )
    failed_at: Instant = Field(description="When the last try failed", examples=[AT])
    next_at: Instant | None = Field(
        description="When it is tried again; null: it is given up", examples=[LATER]
    )


class WebhooksView(View):
    """Webhooks that are not delivered."""

    webhooks: list[FailedWebhookView] = Field(description="Each of them, the latest first")


class FailureGroupView(View):
    """Failed attempts that are alike, of the tenants that the caller may see."""

    group: str = Field(description="The id of the group", examples=["45a0810b127e"])
    step_id: str = Field(description="The id of the step within the job", examples=["ocr"])
    service: str = Field(description="The service that does it", examples=["ocr"])
    code: str = Field(
        description="The code with which the attempts failed", examples=["MODEL_GONE"]
    )
    message: str = Field(
        description="What their messages have in common", examples=["no such model: *"]
    )
    place: str | None = Field(
        description="Where in the service's code it failed, if the service says so",
        examples=["ocr/model.py:41"],
    )
    count: int = Field(description="Failed attempts", examples=[317])
    first_at: Instant = Field(description="When the first of them failed", examples=[AT])
    last_at: Instant = Field(description="When the last of them failed", examples=[LATER])
    tenants: list[str] = Field(
        description="The first twenty tenants that it happened to", examples=[["acme"]]
    )
    tenant_count: int = Field(description="How many tenants it happened to", examples=[1])
    trend: list[int] = Field(
        description="Failures in each five minutes of the last hour, the latest last",
        examples=[[0] * 11 + [317]],
    )
    example: str = Field(description="The job that failed so last", examples=[JOB_ID])


class FailuresView(View):
    """Groups of failures."""

    groups: list[FailureGroupView] = Field(description="The groups, the latest first")


# -- redrive plans ---------------------------------------------------------------------------

_NAMED: Final = ("group", "code", "step", "service", "request_type", "tenant_id")


def _names_something(schema: JsonObject) -> None:
    plainly(schema)
    schema["anyOf"] = [{"required": [name]} for name in _NAMED]


class PlanFilter(JobFilter):
    """Which jobs of the dead-letter view. It must name something."""

    model_config = ConfigDict(json_schema_extra=_names_something)


class StartRedriveBody(OrderBody):
    """A redrive plan: a few first, then the rest at a pace, until too many fail again."""

    filter: PlanFilter = Field(
        description="Which jobs of the dead-letter view; it must name something, and have at most"
        f" {MAX_FILTER} characters as JSON",
        examples=[{"group": "45a0810b127e"}],
    )
    canary: Annotated[int, Field(ge=0, le=100), AnyWhole] = Field(
        5,
        description="Canary size: how many are redriven first; the rest waits for how they end",
        examples=[5],
    )
    rate: Annotated[float, Field(ge=0.001, le=1000)] = Field(
        10.0, description="Jobs that are redriven in a second", examples=[20]
    )
    stop_after: (
        Annotated[str, Field(pattern="^([0-9]{1,6}|[0-9]{1,2}%|100%)$")]
        | Annotated[int, Field(ge=0, le=999_999), AnyWhole]
    ) = Field(
        "10%",
        description="Stop when more have failed again: a part of those that ended (`10%`), or a count",
        examples=["10%"],
    )


class RedrivePlanView(View):
    """A redrive of many. `redriven` to `under_way` count what became of the jobs that matched."""

    planId: str = Field(description="The id of the plan", examples=["plan_0199c1a52e50"])
    state: AnyPlanState = Field(description="How far the plan is", examples=["RUNNING"])
    filter: JsonObject = Field(
        description="Which jobs it takes", examples=[{"group": "45a0810b127e"}]
    )
    canary: int = Field(description="Canary size: how many are redriven first", examples=[5])
    rate: float = Field(description="Jobs that follow in a second", examples=[20.0])
    stop_after: str = Field(
        description="It stops when more than this part or number have failed again",
        examples=["10%"],
    )
    created_at: Instant = Field(description="When it was made", examples=[AT])
    updated_at: Instant = Field(description="When it changed last", examples=[LATER])
    by: str = Field(description="Who gave the order", examples=["night-watch (key 3f2a9c)"])
    reason: str | None = Field(
        description="Why, in words", examples=["the model is being replaced"]
    )
    matched: int = Field(description="Jobs that matched at the start", examples=[15000])
    redriven: int = Field(description="Jobs that were redriven by now", examples=[420])
    succeeded: int = Field(description="Those of them that have succeeded", examples=[400])
    failed: int = Field(description="Those of them that have failed again", examples=[2])
    refused: int = Field(description="Jobs that could not be redriven", examples=[0])
    under_way: int = Field(description="Those of them that have not ended", examples=[18])
    said: str = Field(
        description="Why it stopped, or what it waits for", examples=["10% have failed again"]
    )


class RedrivePlansView(View):
    """Redrive plans."""

    plans: list[RedrivePlanView] = Field(description="The plans, newest first")
