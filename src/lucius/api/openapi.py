"""The OpenAPI document: assembled from the operations, so that it lists every answer they can give."""

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter

from lucius.api.described import described, example_of
from lucius.api.described.bodies import ALSO, REQUESTS, TEXTS
from lucius.api.operation import Answer, Operation
from lucius.api.problems import MEDIA_TYPE, problem_document
from lucius.api.routing import JSON
from lucius.contract import shapes
from lucius.contract.codes import ProblemCode
from lucius.contract.envelope import JsonObject

_REF: Final = "#/components/schemas/{model}"
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


def document(info: JsonObject, operations: Sequence[Operation], *, guarded: bool) -> JsonObject:
    """`guarded`: authentication is on, so callers must say who they are."""
    paths: dict[str, JsonObject] = {}
    for operation in operations:
        if not operation.hidden:
            about = _described(operation, guarded=guarded)
            paths.setdefault(operation.path, {})[operation.method.lower()] = about
    components = {"schemas": dict(schemas()), "securitySchemes": SECURITY}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _described(operation: Operation, *, guarded: bool) -> JsonObject:
    about: JsonObject = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": operation.operation_id,
        "responses": {str(status): each for status, each in responses(operation).items()},
    }
    if operation.description:
        about["description"] = operation.description
    if operation.deprecated:
        about["deprecated"] = True
    if operation.parameters:
        about["parameters"] = [dict(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        about["requestBody"] = {
            "required": operation.body_required,
            "content": {JSON: _request(operation.operation_id, operation.body)},
        }
    return about | _security(operation, guarded=guarded)


def _security(operation: Operation, *, guarded: bool) -> JsonObject:
    if operation.callback_token:
        return {"security": [{"callback_token": []}]}
    if operation.role is None:
        return {}
    about: JsonObject = {
        "x-lucius-role": operation.role.value,
        "x-lucius-every-tenant": operation.every_tenant,
    }
    if operation.also:
        about["x-lucius-also"] = [role.value for role in operation.also]
    return about | ({"security": [{"caller": []}]} if guarded else {})


def responses(operation: Operation) -> dict[int, JsonObject]:
    documents: dict[int, JsonObject] = {
        status: _answer(answer, operation.operation_id)
        for status, answer in operation.answers.items()
    }
    by_status: dict[int, list[ProblemCode]] = {}
    for known in operation.codes:
        by_status.setdefault(known.status, []).append(known)
    for status, codes in sorted(by_status.items()):
        documents[status] = _problem(codes, operation.problem)
    return documents


def _request(operation_id: str, schema: JsonObject) -> JsonObject:
    example = REQUESTS.get(operation_id)
    return {"schema": described(schema)} | ({} if example is None else {"example": example})


def _answer(answer: Answer, operation_id: str) -> JsonObject:
    document: JsonObject = {"description": answer.description}
    content: JsonObject = {}
    if answer.shape is not None:
        schema = {"$ref": _REF.format(model=answer.shape.__name__)}
        example = example_of(schema, schemas(), *ALSO.get(operation_id, ()))
        content[JSON] = {"schema": schema, "example": example}
    if answer.media is not None:
        text = {} if answer.shape else {"schema": {"type": "string"}}
        content[answer.media] = {**text, "example": TEXTS[answer.media]}
    if content:
        document["content"] = content
    if answer.headers:
        document["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in answer.headers.items()
        }
    return document


def _problem(codes: Sequence[ProblemCode], shape: type[Any]) -> JsonObject:
    """The codes are listed for readers, and as a schema for programs."""
    listed = {"properties": {"code": {"enum": [known.code for known in codes]}}}
    schema = {"allOf": [{"$ref": _REF.format(model=shape.__name__)}, described(listed)]}
    example = problem_document(codes[0], codes[0].title)
    document: JsonObject = {
        "description": "\n".join(f"- `{known.code}`: {known.title}" for known in codes),
        "content": {MEDIA_TYPE: {"schema": schema, "example": example}},
    }
    if any(known.retry_after for known in codes):
        document["headers"] = {
            "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}
        }
    return document


@cache
def schemas() -> MappingProxyType[str, Any]:
    """The JSON schemas of all answer shapes."""
    adapters = [
        (name, "serialization", TypeAdapter(shape))
        for name, shape in vars(shapes).items()
        if name.endswith("Shape")
    ]
    _, definitions = TypeAdapter.json_schemas(adapters, ref_template=_REF)  # type: ignore[arg-type]
    return MappingProxyType(
        {name: described(schema, name) for name, schema in definitions["$defs"].items()}
    )


def path_parameter(name: str, description: str) -> JsonObject:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "minLength": 1},
    }


def query_parameter(name: str, description: str, schema: JsonObject | None = None) -> JsonObject:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": schema or {"type": "string"},
    }


def header_parameter(name: str, description: str, schema: JsonObject | None = None) -> JsonObject:
    return {**query_parameter(name, description, schema), "in": "header"}
