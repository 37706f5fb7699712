"""Problem documents (RFC 9457): the one place where an error becomes an answer."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from lucius.contract.codes import CODES, ProblemCode
from lucius.contract.models.base import JsonObject, ProblemView
from lucius.core.errors import (
    BusUnavailableError,
    LedgerCorruptError,
    LedgerError,
    LedgerRowUnreadableError,
    LuciusError,
    RequestError,
    WorkflowsUnavailableError,
)

MEDIA_TYPE: Final = "application/problem+json"
T = TypeVar("T")
TYPE_BASE: Final = "urn:lucius:problem:"
RETRY_AFTER_SECONDS: Final = 1
_MAX_ERRORS: Final = 100


class Problem(LuciusError):
    """An answer that is an error. Raised anywhere below a route, rendered in one place."""

    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        errors: Sequence[JsonObject] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.known = CODES[code]
        self.detail = detail or self.known.explanation
        super().__init__(self.detail)
        self.errors = errors
        self.headers = dict(headers or {})


class Rendered(NamedTuple):
    """An error as what is answered; also for whoever shows it as something else than a document."""

    known: ProblemCode
    detail: str
    errors: Sequence[JsonObject] = ()
    headers: Mapping[str, str] = {}


def offered(part: T | None) -> T:
    """A part that this process may run without."""
    if part is None:
        raise Problem("NOT_SUPPORTED")
    return part


def parameter_problem(name: str, detail: str, code: str = "INVALID_PARAMETER") -> Problem:
    return Problem(code, f"{name}: {detail}", errors=[{"parameter": name, "detail": detail}])


def problem_response(error: Exception, **more: Any) -> Response:
    """The document for an error of ours; anything else is a defect and says nothing but that."""
    known, detail, errors, headers = rendered(error)
    if known.retry_after:
        headers = {"retry-after": str(RETRY_AFTER_SECONDS), **headers}
    document = problem_document(known, detail, errors) | more
    return Response(orjson.dumps(document), known.status, dict(headers), MEDIA_TYPE)


def problem_document(
    known: ProblemCode, detail: str, errors: Sequence[JsonObject] = ()
) -> JsonObject:
    document: JsonObject = {
        "type": TYPE_BASE + known.code,
        "title": known.title,
        "status": known.status,
        "code": known.code,
        "detail": detail,
    }
    if errors:
        document["errors"] = list(errors[:_MAX_ERRORS])
    return document


_CODE_OF: Final = {
    LedgerCorruptError: "LEDGER_CORRUPT",
    LedgerError: "LEDGER_UNAVAILABLE",
    BusUnavailableError: "BUS_UNAVAILABLE",
    WorkflowsUnavailableError: "ORCHESTRATION_UNAVAILABLE",
}
"""The first that fits."""


def rendered(error: Exception) -> Rendered:
    if isinstance(error, Problem):
        return Rendered(error.known, error.detail, error.errors, error.headers)
    if isinstance(error, RequestError):
        return _refused(error)
    if isinstance(error, LedgerRowUnreadableError):
        detail = f"what is stored of job {error.job_id} cannot be read"
        return Rendered(CODES["LEDGER_ROW_UNREADABLE"], detail)
    for kind, code in _CODE_OF.items():
        if isinstance(error, kind):
            return Rendered(CODES[code], str(error))
    known = CODES["INTERNAL_ERROR"]
    return Rendered(known, known.explanation)


_FROM_INSIDE: Final = (LedgerError, BusUnavailableError, WorkflowsUnavailableError)
"""Their texts name files, hosts and accounts."""


def without_texts(error: LuciusError) -> LuciusError:
    """The same problem for those who need not know what storage or bus said. The log says it."""
    hidden = isinstance(error, _FROM_INSIDE) and not isinstance(error, LedgerRowUnreadableError)
    return Problem(rendered(error).known.code) if hidden else error


def outcome_of(error: Exception) -> JsonObject:
    """The same error as one line of a batch."""
    known, detail, _, _ = rendered(error)
    return {"status": known.status, "code": known.code, "detail": detail}


def _refused(error: RequestError) -> Rendered:
    known = CODES.get(error.code)
    if known is None:
        known = ProblemCode(error.code, error.status, "The request was refused", "", "")
    faults: list[JsonObject] = [{"pointer": at, "detail": detail} for at, detail in error.faults]
    return Rendered(known, error.detail, faults)


# What of a request does not fit its models, as the faults of a problem document: all of them at once.

M = TypeVar("M", bound=BaseModel)
_BEGINNING: Final = re.compile(r"^\w+ should ")
_WORDS: Final = {
    "missing": "is missing",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "extra_forbidden": "is not known here",
}
"""Where pydantic's own words are those of Python."""
_MAX_NAME: Final = 64


def unfit(error: RequestValidationError) -> Problem:
    """Faults of parameters come first: what a request asks for is then not what it meant."""
    faults = list(_faults(error.errors(), error.body))
    of_parameters = [fault for fault in faults if "parameter" in fault]
    if not of_parameters:
        return Problem("INVALID_BODY", errors=faults)
    detail = "; ".join(f"{each['parameter']}: {each['detail']}" for each in of_parameters)
    return Problem("INVALID_PARAMETER", detail, errors=[*of_parameters, *faults][: len(faults)])


def read_as(model: type[M], body: Mapping[str, Any], code: str = "INVALID_BODY") -> M:
    """The body as its model, for the routes that read it themselves."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise Problem(code, errors=list(_faults(found, body))) from None


def _faults(errors: Sequence[Any], body: Any) -> Iterator[JsonObject]:
    """Each place once: what fits none of several models is a fault for each of them."""
    said: dict[tuple[str, str], list[str]] = {}
    for each in errors:
        place, *inside = each["loc"]
        if place == "body":
            key = ("pointer", _pointer(inside, body, missing=each["type"] == "missing"))
        else:
            key = ("parameter", str(inside[0]) if inside else str(place))
        words = said.setdefault(key, [])
        if (detail := _detail(each)) not in words:
            words.append(detail)
    for (kind, at), details in said.items():
        yield {kind: at, "detail": " or ".join(details)}


def _pointer(inside: Sequence[Any], body: Any, *, missing: bool) -> str:
    """Pydantic also names the member of a union that it tried: only what is in the body is a place."""
    pointer, value = "", body
    for number, part in enumerate(inside):
        last = number == len(inside) - 1
        if isinstance(value, dict) and (part in value or (missing and last)):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            continue
        pointer += "/" + str(part)[:_MAX_NAME].replace("~", "~0").replace("/", "~1")
    return pointer


def _detail(error: Any) -> str:
    """What must be there. What was there instead is not repeated."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return _WORDS.get(error["type"]) or _BEGINNING.sub("must ", str(error["msg"]))


# What a route declares of its errors: the codes of its own, and those that all routes of its kind share.
#
# OpenAPI is made from it.

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
