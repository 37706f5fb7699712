"""What LUCIUS sends to the webhooks that a client names: how a job ended."""

from typing import Annotated, Any

from pydantic import Field

from lucius.contract.models.base import LATER, OUTPUT, Instant, View, words
from lucius.contract.models.jobs import (
    AnyJobState,
    AnyJobStatus,
    AnyPhase,
    JobId,
    RequestType,
    TenantId,
)


class EndedJob(View):
    """The job at its end."""

    jobId: JobId
    tenant_id: TenantId
    request_type: RequestType
    state: AnyJobState = Field(description="How it ended", examples=["SUCCEEDED"])
    status: AnyJobStatus = Field(
        description="How it ended, in coarser words that follow from `state`",
        examples=["SUCCEEDED"],
    )
    phase: AnyPhase = Field(
        description="Where the job is, computed from its attempts alone", examples=["SUCCEEDED"]
    )
    final_output: Any = Field(
        description="The result of the last step, once the job has succeeded",
        examples=[{"uri": OUTPUT}],
    )
    error_code: str | None = Field(
        description="The code with which the job failed", examples=[None]
    )
    error_message: str | None = Field(description="What was said of the failure", examples=[None])
    correlation_id: str | None = Field(
        description="The client's own id; logs and directives carry it", examples=["order-4711"]
    )


class JobEndedWebhook(View):
    """The body of a webhook, as Standard Webhooks have it. Its headers carry its id and its signature."""

    type: Annotated[str, words("job.succeeded", "job.failed_final", "job.cancelled")] = Field(
        description="How the job ended", examples=["job.succeeded"]
    )
    timestamp: Instant = Field(description="When it ended", examples=[LATER])
    data: EndedJob = Field(description="The job at its end")
