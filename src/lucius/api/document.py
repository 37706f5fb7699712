"""What the OpenAPI document says beyond what FastAPI knows: roles, credentials, examples, problems."""

from collections.abc import Sequence
from typing import Any, Final, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lucius.api.routes import webhooks
from lucius.api.routing import JSON, ApiRoute
from lucius.contract.models.base import JsonObject, example_of
from lucius.contract.models.problems import ProblemView, UnreadyView

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
    for webhook in webhooks.router.routes:
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
