"""The internal API as OpenAPI: paths, bodies and answers, from the models that check them."""

from functools import cache
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lucius import __version__
from lucius.invoker.bodies import (
    AttemptBody,
    PublishBody,
    SpokenBody,
    SupersededBody,
    TimeoutBody,
    ToldBody,
    ToldOutcomeBody,
)

ATTEMPT: Final = "/v1/internal/steps/attempt"
PUBLISH: Final = "/v1/internal/publish"
TIMEOUT: Final = "/v1/internal/steps/timeout"
INPUTS: Final = "/v1/internal/jobs/{jobId}/inputs"
_REF: Final = "#/components/schemas/{model}"
_OPERATIONS: Final[dict[str, tuple[str, type[BaseModel], type[BaseModel]]]] = {
    ATTEMPT: (
        "Record an attempt: the next one, or the current one again where its lease was given back",
        AttemptBody,
        ToldBody,
    ),
    PUBLISH: (
        "Publish the directive of the current attempt, unless it is out. It is rendered here",
        PublishBody,
        ToldBody,
    ),
    TIMEOUT: (
        "A timer of the job's workflow has fired: what has run out, has",
        TimeoutBody,
        ToldBody,
    ),
    INPUTS: (
        "What a client, an operator or a service said to an orchestrator",
        SpokenBody,
        ToldOutcomeBody,
    ),
}


@cache
def description() -> dict[str, Any]:
    asked = [(body, "validation") for _, body, _ in _OPERATIONS.values()]
    answers = (ToldBody, ToldOutcomeBody, SupersededBody)
    told = [(answer, "serialization") for answer in answers]
    _, schemas = models_json_schema([*asked, *told], ref_template=_REF)  # type: ignore[list-item]
    return {
        "openapi": "3.1.0",
        "info": {"title": "LUCIUS invoker", "version": __version__},
        "paths": {path: {"post": _operation(path)} for path in _OPERATIONS},
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"secret": []}],
    }


def _operation(path: str) -> dict[str, Any]:
    summary, body, answer = _OPERATIONS[path]
    named = {"name": "jobId", "in": "path", "required": True, "schema": {"type": "string"}}
    problem = {"description": "A problem document with a stable `code`"}
    return {
        "summary": summary,
        "parameters": [named] if "{jobId}" in path else [],
        "requestBody": {"required": True, "content": _json(body)},
        "responses": {
            "200": {"description": "The outcome, and how the job stands", "content": _json(answer)},
            **(_SUPERSEDED if path in (ATTEMPT, PUBLISH) else {}),
            **dict.fromkeys(("401", "403", "404", "413", "422", "503"), problem),
        },
    }


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}}


_SUPERSEDED: Final = {
    "409": {
        "description": "It is not what comes next; nothing was done",
        "content": _json(SupersededBody),
    }
}
