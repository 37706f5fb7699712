"""The OpenAPI document: assembled from the operations, so that it lists every answer they can give."""

from functools import cache
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter

from lucius.api.codes import CODES
from lucius.api.operation import JSON, Answer, Operation
from lucius.api.problems import MEDIA_TYPE
from lucius.contract import shapes

Json = dict[str, Any]
_REF: Final = "#/components/schemas/{model}"
_ALWAYS: Final = (
    "INTERNAL_ERROR",
    "LEDGER_UNAVAILABLE",
    "LEDGER_CORRUPT",
    "LEDGER_ROW_UNREADABLE",
    "MISDIRECTED_REQUEST",
    "HEADERS_TOO_LARGE",
    "REQUEST_TIMEOUT",
    "INVALID_HTTP",
    "INVALID_HOST",
    "INVALID_TARGET",
    "UNKNOWN_PARAMETER",
)
_BEYOND_MONITORS: Final = ("TOO_MANY_CONNECTIONS", "CONNECTIONS_EXHAUSTED")
_WITH_BODY: Final = (
    "INVALID_JSON",
    "INVALID_BODY",
    "BODY_TOO_LARGE",
    "UNSUPPORTED_MEDIA_TYPE",
    "CROSS_ORIGIN",
)
_WITH_ROLE: Final = (
    "UNAUTHENTICATED",
    "FORBIDDEN",
    "RATE_LIMITED",
    "AUTHENTICATION_UNAVAILABLE",
)
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


def extra(operation: Operation, *, guarded: bool) -> Json:
    """What FastAPI cannot see, because handlers read the request themselves.

    `guarded`: authentication is on, so callers must say who they are.
    """
    document: Json = {}
    if operation.parameters:
        document["parameters"] = [dict(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        document["requestBody"] = {
            "required": operation.body_required,
            "content": {JSON: {"schema": operation.body}},
        }
    if operation.callback_token:
        document["security"] = [{"callback_token": []}]
    elif operation.role is not None:
        document["x-lucius-role"] = operation.role.value
        document["x-lucius-every-tenant"] = operation.every_tenant
        if guarded:
            document["security"] = [{"caller": []}]
    return document


def responses(operation: Operation) -> dict[int | str, Json]:
    documents: dict[int | str, Json] = {
        status: _answer(answer) for status, answer in operation.answers.items()
    }
    by_status: dict[int, list[str]] = {}
    for code in _codes(operation):
        by_status.setdefault(CODES[code].status, []).append(code)
    for status, codes in sorted(by_status.items()):
        documents[status] = _problem(codes)
    return documents


def _codes(operation: Operation) -> dict[str, None]:
    codes = [*operation.codes]
    if operation.body is not None:
        codes += _WITH_BODY
    if operation.role is not None:
        codes += _WITH_ROLE
    if operation.every_tenant:
        codes.append("TENANT_FORBIDDEN")
    if not operation.monitor:
        codes += _BEYOND_MONITORS
    if any(parameter["in"] == "query" for parameter in operation.parameters):
        codes.append("INVALID_PARAMETER")
    return dict.fromkeys([*codes, *_ALWAYS])


def _answer(answer: Answer) -> Json:
    document: Json = {"description": answer.description}
    content: Json = {}
    if answer.shape is not None:
        content[JSON] = {"schema": {"$ref": _REF.format(model=answer.shape.__name__)}}
    if answer.media is not None:
        content[answer.media] = {} if answer.shape else {"schema": {"type": "string"}}
    if content:
        document["content"] = content
    if answer.headers:
        document["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in answer.headers.items()
        }
    return document


def _problem(codes: list[str]) -> Json:
    lines = [f"- `{code}`: {CODES[code].title}" for code in codes]
    document: Json = {
        "description": "\n".join(lines),
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="ProblemShape")}}},
    }
    if any(CODES[code].retry_after for code in codes):
        document["headers"] = {
            "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}
        }
    return document


@cache
def components() -> MappingProxyType[str, Any]:
    """The JSON schemas of all answer shapes."""
    adapters = [
        (name, "serialization", TypeAdapter(shape))
        for name, shape in vars(shapes).items()
        if name.endswith("Shape")
    ]
    _, definitions = TypeAdapter.json_schemas(adapters, ref_template=_REF)  # type: ignore[arg-type]
    return MappingProxyType(definitions["$defs"])


def completed(document: Json) -> Json:
    """Add what operations refer to."""
    parts = document.setdefault("components", {})
    parts["schemas"] = {**parts.get("schemas", {}), **components()}
    parts["securitySchemes"] = SECURITY
    return document


def path_parameter(name: str, description: str) -> Json:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "minLength": 1},
    }


def query_parameter(name: str, description: str, schema: Json | None = None) -> Json:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": schema or {"type": "string"},
    }


def header_parameter(name: str, description: str, schema: Json | None = None) -> Json:
    return {**query_parameter(name, description, schema), "in": "header"}
