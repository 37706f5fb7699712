"""Problem documents (RFC 9457): the one place where an error becomes an answer."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

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
