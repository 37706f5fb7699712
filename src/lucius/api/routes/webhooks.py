"""The webhooks that LUCIUS calls, declared for the OpenAPI document. `lucius.webhooks` sends them."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Response
from fastapi.routing import APIRoute

from lucius.api.routing import build
from lucius.contract.models.webhooks import JobEndedWebhook


class _WebhookRoute(APIRoute):
    def get_route_handler(self) -> Any:
        if self.body_field is not None:
            build(self.body_field)
        return super().get_route_handler()


router = APIRouter(tags=["webhooks"], route_class=_WebhookRoute)
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    410: {"description": "The receiver wants no more calls: it gets none for this job"},
    "default": {"description": "Not taken: it is called again, with the same `webhook-id`"},
}


@router.post(
    "job.ended",
    operation_id="job_ended",
    response_class=Response,
    summary="A job has ended",
    description="To each of the job's `callback_urls`, signed as Standard Webhooks are. It may come more"
    " than once, with the same `webhook-id`.",
    status_code=200,
    response_description="Taken, as with any other status of 200 to 299",
    responses=_ANSWERS,
)
async def job_ended(
    body: JobEndedWebhook,
    webhook_id: Annotated[
        str, Header(description="The id of this call", examples=["job_1:notify-0"])
    ],
    webhook_timestamp: Annotated[
        str,
        Header(description="When it was signed, in seconds since 1970", examples=["1769508000"]),
    ],
    webhook_signature: Annotated[
        str,
        Header(
            description="One signature for each key, with spaces", examples=["v1,K5oZfzN95Z9U="]
        ),
    ],
) -> None: ...
