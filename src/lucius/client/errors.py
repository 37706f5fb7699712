"""What the client raises: one class for each kind of refusal, so that a program catches what it can mend."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final


class ClientError(Exception):
    """The root of what this client raises."""


class UnreachableError(ClientError):
    """The server could not be reached, or did not answer."""


class ProblemError(ClientError):
    """The server refused the request. `code` is stable and has a reference page.

    `errors` has one entry for each bad field: `pointer` or `parameter`, and `detail`. `retry_after`: seconds
    after which the same request may be taken, where the server says so. `document` is the problem as it came.
    """

    def __init__(
        self, status: int, document: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        self.status = status
        self.document = document
        self.retry_after = retry_after
        self.code = str(document.get("code", "UNKNOWN"))
        self.detail = str(document.get("detail", ""))
        self.errors: list[dict[str, str]] = list(document.get("errors", ()))
        more = [line for line in map(_line, self.errors) if line.strip() not in self.detail]
        self.lines = [f"{self.code}: {self.detail}", *more]
        super().__init__("\n".join(self.lines))


class Invalid(ProblemError):
    """The request cannot be taken as it is: `errors` points to every bad field."""


class Unauthenticated(ProblemError):
    """There is no API key, or one that the server does not know."""


class Forbidden(ProblemError):
    """The caller may not do this, or not for this tenant."""


class NotFound(ProblemError):
    """There is no such job, service, group or plan, or the caller may not see it."""


class Conflict(ProblemError):
    """What the request asks for does not go with the state of the job, or with what was said before."""


class Saturated(ProblemError):
    """There is no room for now: ask again after `retry_after` seconds."""


class Unavailable(ProblemError):
    """The server, or what it needs, does not answer for now."""


_KINDS: Final[Mapping[int, type[ProblemError]]] = {
    HTTPStatus.BAD_REQUEST: Invalid,
    HTTPStatus.UNAUTHORIZED: Unauthenticated,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Invalid,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: Invalid,
    HTTPStatus.UNPROCESSABLE_ENTITY: Invalid,
    HTTPStatus.TOO_MANY_REQUESTS: Saturated,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: Invalid,
    HTTPStatus.BAD_GATEWAY: Unavailable,
    HTTPStatus.SERVICE_UNAVAILABLE: Unavailable,
    HTTPStatus.GATEWAY_TIMEOUT: Unavailable,
}


def refusal(
    status: int, document: Mapping[str, Any], retry_after: float | None = None
) -> ProblemError:
    """The error for an answer of this status."""
    return _KINDS.get(status, ProblemError)(status, document, retry_after)


def _line(error: Mapping[str, str]) -> str:
    place = error.get("pointer") or error.get("parameter") or "/"
    return f"  {place}: {error.get('detail', '')}"
