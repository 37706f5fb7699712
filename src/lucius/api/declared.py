"""What a route declares of its errors: the codes of its own, and those that all routes of its kind share.

OpenAPI is made from it.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel

from lucius.api.problems import MEDIA_TYPE, problem_document
from lucius.contract.codes import CODES, ProblemCode
from lucius.contract.models.base import JsonObject
from lucius.contract.models.problems import ProblemView

Responses = dict[int | str, dict[str, Any]]


class RouteKind(StrEnum):
    """Kinds of routes, for codes that all of a kind answer with."""

    ALL = "every operation"
    WITH_BODY = "every operation that takes a body"
    WITH_QUERY = "every operation that takes query parameters"
    WITH_ROLE = "every operation that needs a role"
    OF_A_JOB = "every operation whose path names a job"
    CALLBACKS = "every callback"
    FOR_ALL_TENANTS = "every operation for callers that are bound to no tenant"
    NOT_FOR_MONITORS = "every operation but `GET /healthz` and `GET /readyz`"
    UNROUTED = "a request that no operation takes"


SHARED: Final[dict[RouteKind, tuple[str, ...]]] = {
    RouteKind.ALL: (
        "INVALID_HTTP",
        "INVALID_HOST",
        "INVALID_TARGET",
        "UNKNOWN_PARAMETER",
        "OTHER_USER",
        "RATE_LIMITED",
        "MISDIRECTED_REQUEST",
        "HEADERS_TOO_LARGE",
        "REQUEST_TIMEOUT",
        "LEDGER_UNAVAILABLE",
        "LEDGER_CORRUPT",
        "LEDGER_ROW_UNREADABLE",
        "INTERNAL_ERROR",
    ),
    RouteKind.WITH_BODY: (
        "INVALID_JSON",
        "DUPLICATE_KEY",
        "NESTING_TOO_DEEP",
        "INVALID_BODY",
        "BODY_TOO_LARGE",
        "UNSUPPORTED_MEDIA_TYPE",
        "CROSS_ORIGIN",
    ),
    RouteKind.WITH_QUERY: ("INVALID_PARAMETER",),
    RouteKind.WITH_ROLE: ("UNAUTHENTICATED", "FORBIDDEN", "AUTHENTICATION_UNAVAILABLE"),
    RouteKind.OF_A_JOB: ("JOB_NOT_FOUND",),
    RouteKind.CALLBACKS: (
        "INVALID_CALLBACK",
        "CALLBACK_TOKEN_REQUIRED",
        "CALLBACK_TOKEN_INVALID",
        "STALE_ATTEMPT",
        "UNKNOWN_STEP",
        "JOB_NOT_FOUND",
    ),
    RouteKind.FOR_ALL_TENANTS: ("TENANT_FORBIDDEN",),
    RouteKind.NOT_FOR_MONITORS: ("TOO_MANY_CONNECTIONS", "CONNECTIONS_EXHAUSTED"),
    RouteKind.UNROUTED: ("NOT_FOUND", "METHOD_NOT_ALLOWED"),
}
_CODES: Final = "codes"
_MODEL: Final = "problem"
_REF: Final = "#/components/schemas/{model}"


def problems(*codes: str, model: type[BaseModel] = ProblemView) -> Responses:
    """The codes that a route itself answers with, for `responses=` where it is declared."""
    found: Responses = {}
    for code in codes:
        answer = found.setdefault(CODES[code].status, {_CODES: [], _MODEL: model})
        answer[_CODES].append(code)
    return found


def named_in(responses: Responses) -> tuple[str, ...]:
    """The codes of a declaration, without what a route says of its successes."""
    return tuple(code for each in responses.values() for code in each.get(_CODES, ()))


def successes_in(responses: Responses) -> Responses:
    return {status: each for status, each in responses.items() if _CODES not in each}


def all_codes(own: Collection[str], kinds: Collection[RouteKind]) -> tuple[ProblemCode, ...]:
    """In the order of the registry."""
    shared = {code for kind in kinds for code in SHARED[kind]}
    return tuple(known for code, known in CODES.items() if code in own or code in shared)


def documented(codes: Iterable[ProblemCode], responses: Responses) -> Responses:
    """The answers of a route that are problems, as OpenAPI describes them."""
    by_status: dict[int, list[ProblemCode]] = {}
    for known in codes:
        by_status.setdefault(known.status, []).append(known)
    return {
        status: _problem(listed, responses.get(status, {}).get(_MODEL, ProblemView))
        for status, listed in sorted(by_status.items())
    }


def _problem(listed: list[ProblemCode], model: type[BaseModel]) -> JsonObject:
    """The codes are listed for readers, and as a schema for programs."""
    codes = [known.code for known in listed]
    code = {"description": "A stable code; docs/reference/errors.md explains each", "enum": codes}
    schema = {
        "allOf": [{"$ref": _REF.format(model=model.__name__)}, {"properties": {"code": code}}]
    }
    example = problem_document(listed[0], listed[0].title)
    about: JsonObject = {
        "description": "\n".join(f"- `{known.code}`: {known.title}" for known in listed),
        "content": {MEDIA_TYPE: {"schema": schema, "example": example}},
    }
    if any(known.retry_after for known in listed):
        about["headers"] = {
            "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}
        }
    return about


def header(name: str, description: str) -> JsonObject:
    """A header of a success, for `responses=`."""
    return {name: {"description": description, "schema": {"type": "string"}}}
