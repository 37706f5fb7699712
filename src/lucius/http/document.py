"""What the OpenAPI document says beyond what FastAPI knows: roles, credentials, examples, problems."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, get_args

import orjson
from fastapi import APIRouter, Header
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from lucius.contract.models.base import JsonObject, ProblemView, UnreadyView, example_of
from lucius.contract.models.jobs import JobEndedWebhook
from lucius.http import asyncapi
from lucius.http.context import ApiOptions
from lucius.http.routing import JSON, ApiRoute, build, needs

# The documents of the running server: its API and its bus. Each is rendered once, beside the loop.

DOCUMENT: Final = "/openapi.json"
BUS_DOCUMENT: Final = "/asyncapi.json"


def pages(openapi: Callable[[], dict[str, Any]], options: ApiOptions) -> APIRouter:
    router = APIRouter(
        route_class=ApiRoute,
        tags=["pages"],
        dependencies=[needs(None)],
        include_in_schema=False,
    )
    api = RenderedOnce(openapi)
    bus = RenderedOnce(lambda: asyncapi.document(options.topology, options.topic_prefix))

    @router.get(DOCUMENT)
    async def api_document() -> Response:
        return Response(await api(), media_type=JSON)

    @router.get(BUS_DOCUMENT)
    async def bus_document() -> Response:
        return Response(await bus(), media_type=JSON)

    return router


class RenderedOnce:
    """Rendering takes a while, so it is done beside the loop, and whoever asks meanwhile waits for it."""

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self._document = document
        self._made: asyncio.Task[bytes] | None = None

    async def __call__(self) -> bytes:
        self._made = self._made or asyncio.create_task(asyncio.to_thread(self._render))
        return await asyncio.shield(self._made)

    def _render(self) -> bytes:
        return orjson.dumps(self._document())


# The webhooks that LUCIUS calls, declared for the OpenAPI document. `lucius.webhooks` sends them.


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


SECURITY: Final = {
    "caller": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key or a JWT.",
    },
    "callback_token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The `callback_token` of the directive that is answered. Always needed.",
    },
}
_EVENT: Final = 'id: 1\nevent: submitted\ndata: {"seq": 1, "jobId": "job_1"}\n\n'
TEXTS: Final = {
    "text/event-stream": _EVENT,
    "text/plain": 'lucius_jobs_live{tenant="acme"} 12\n',
}
"""Examples of answers that are not JSON, by media type."""
SHOWN: Final = {
    "get_job": ("steps",),
    "cancel": ("immediate", "reason"),
    "redrive": ("payload", "reason"),
    "pull_directives": ("max", "wait_seconds", "worker_id", "slots"),
    "start_redrive": ("canary", "rate", "stop_after"),
    "callback_ack": ("worker_id", "timestamp"),
    "callback_result": ("output_ref",),
}
"""Properties that are not required, and that are worth showing in an example, by operation."""


def completed(document: JsonObject, routes: Sequence[ApiRoute], *, guarded: bool) -> JsonObject:
    """`guarded`: authentication is on, so callers must say who they are."""
    for route in routes:
        about = document["paths"][route.path][route.method.lower()]
        about |= _access(route, guarded=guarded)
        for parameter in about.get("parameters", ()):
            for said in ("title", "description"):  # beside the schema, too
                parameter["schema"].pop(said, None)
        _exemplify(route, about)
    for webhook in router.routes:
        if isinstance(webhook, APIRoute):
            _exemplify(webhook, document["webhooks"][webhook.path]["post"])
    document["components"]["securitySchemes"] = SECURITY
    return with_models(document, ProblemView, UnreadyView)


def with_models(document: JsonObject, *models: type[BaseModel]) -> JsonObject:
    """With those of problems, which FastAPI does not know: no route returns them."""
    said = [(model, "serialization") for model in models]
    _, found = models_json_schema(said, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    components = document["components"]
    components["schemas"] = found["$defs"] | components["schemas"]
    return document


def _access(route: ApiRoute, *, guarded: bool) -> JsonObject:
    access = route.access
    if access.callback_token:
        return {"security": [{"callback_token": []}]}
    if access.role is None:
        return {}
    about: JsonObject = {
        "x-lucius-role": access.role.value,
        "x-lucius-every-tenant": access.every_tenant,
    }
    if access.also:
        about["x-lucius-also"] = [role.value for role in access.also]
    return about | ({"security": [{"caller": []}]} if guarded else {})


def _exemplify(route: APIRoute, about: JsonObject) -> None:
    """Every body and every answer has an example, made of those of its fields."""
    shown = SHOWN.get(route.operation_id or "", ())
    if (body := body_of(route)) is not None:
        example = example_of(body, *shown)
        about["requestBody"]["content"][JSON]["example"] = example
    answered = {str(status): each.get("model") for status, each in route.responses.items()}
    answered[str(route.status_code or 200)] = route.response_model
    for status, answer in about["responses"].items():
        model = answered.get(status)
        for media, content in answer.get("content", {}).items():
            if media in TEXTS:
                content["example"] = TEXTS[media]
            elif media == JSON and model is not None:
                content["example"] = example_of(model, *shown)


def body_of(route: APIRoute) -> type[BaseModel] | None:
    """The model of its body."""
    if route.body_field is None:
        return None
    return _model_in(route.body_field.field_info.annotation)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each))), None)
