"""Problem documents (RFC 9457): the one place where an error becomes an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson
from starlette.responses import Response

from lucius.contract.codes import CODES, ProblemCode
from lucius.contract.models.base import JsonObject
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


@dataclass(frozen=True, slots=True)
class _Rendered:
    known: ProblemCode
    detail: str
    errors: Sequence[JsonObject]
    headers: dict[str, str]


def parameter_problem(name: str, detail: str, code: str = "INVALID_PARAMETER") -> Problem:
    return Problem(code, f"{name}: {detail}", errors=[{"parameter": name, "detail": detail}])


def problem_response(error: Exception) -> Response:
    """The document for an error of ours; anything else is a defect and says nothing but that."""
    rendered = _render(error)
    if rendered.known.retry_after and "retry-after" not in rendered.headers:
        rendered.headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    return Response(
        orjson.dumps(problem_document(rendered.known, rendered.detail, rendered.errors)),
        status_code=rendered.known.status,
        headers=rendered.headers,
        media_type=MEDIA_TYPE,
    )


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


def _render(error: Exception) -> _Rendered:
    if isinstance(error, Problem):
        return _Rendered(error.known, error.detail, error.errors, dict(error.headers))
    if isinstance(error, RequestError):
        return _refused(error)
    if isinstance(error, LedgerRowUnreadableError):
        detail = f"what is stored of job {error.job_id} cannot be read"
        return _Rendered(CODES["LEDGER_ROW_UNREADABLE"], detail, (), {})
    if isinstance(error, LedgerCorruptError):
        return _Rendered(CODES["LEDGER_CORRUPT"], str(error), (), {})
    if isinstance(error, LedgerError):
        return _Rendered(CODES["LEDGER_UNAVAILABLE"], str(error), (), {})
    if isinstance(error, BusUnavailableError):
        return _Rendered(CODES["BUS_UNAVAILABLE"], str(error), (), {})
    if isinstance(error, WorkflowsUnavailableError):
        return _Rendered(CODES["ORCHESTRATION_UNAVAILABLE"], str(error), (), {})
    known = CODES["INTERNAL_ERROR"]
    return _Rendered(known, known.explanation, (), {})


_FROM_INSIDE: Final = (LedgerError, BusUnavailableError, WorkflowsUnavailableError)
"""Their texts name files, hosts and accounts."""


def without_texts(error: LuciusError) -> LuciusError:
    """The same problem for those who need not know what storage or bus said. The log says it."""
    hidden = isinstance(error, _FROM_INSIDE) and not isinstance(error, LedgerRowUnreadableError)
    return Problem(_render(error).known.code) if hidden else error


class Parts(NamedTuple):
    """An error, for whoever shows it as something else than a document."""

    status: int
    code: str
    detail: str
    errors: Sequence[JsonObject]
    headers: Mapping[str, str]


def problem_parts(error: Exception) -> Parts:
    rendered = _render(error)
    known = rendered.known
    return Parts(known.status, known.code, rendered.detail, rendered.errors, rendered.headers)


def outcome_of(error: Exception) -> JsonObject:
    """The same error as one line of a batch."""
    rendered = _render(error)
    known = rendered.known
    return {"status": known.status, "code": known.code, "detail": rendered.detail}


def _refused(error: RequestError) -> _Rendered:
    known = CODES.get(error.code)
    if known is None:
        known = ProblemCode(error.code, error.status, "The request was refused", "", "")
    faults: list[JsonObject] = [{"pointer": at, "detail": detail} for at, detail in error.faults]
    return _Rendered(known, error.detail, faults, {})
