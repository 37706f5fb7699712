"""What the client raises: one class for each kind of refusal, so that a program catches what it can mend."""

from collections.abc import Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

from lucius.client import models


class ClientError(Exception):
    """The root of what this client raises."""


class UnreachableError(ClientError):
    """The server could not be reached, or did not answer."""


class ProblemError(ClientError):
    """The server refused the request. `code` is stable; docs/reference/errors.md explains each.

    `retry_after`: seconds after which the same request may be taken, where the server says so. `problem` is
    the problem document, `document` the same as it came.
    """

    def __init__(
        self, status: int, document: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        self.status = status
        self.document = document
        self.retry_after = retry_after
        self.code = str(document.get("code", "UNKNOWN"))
        self.detail = str(document.get("detail", ""))
        self._faults = [_fault(each) for each in _listed(document.get("errors"))]
        more = [line for line in map(_line, self._faults) if line.strip() not in self.detail]
        self.lines = [f"{self.code}: {self.detail}", *more]
        super().__init__("\n".join(self.lines))

    @cached_property
    def problem(self) -> "models.ProblemView":
        """What a server in between leaves out or says in another type is made up for."""
        document = {
            **self.document,
            "type": str(self.document.get("type", "about:blank")),
            "title": str(self.document.get("title", self.code)),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "errors": self._faults,
        }
        return models.ProblemView.model_validate(document)

    @property
    def errors(self) -> "list[models.FaultView]":
        """One entry for each bad field: its `pointer` or `parameter`, and `detail`."""
        return self.problem.errors


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


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _fault(value: Any) -> dict[str, str]:
    """Texts alone, and a detail among them."""
    given = value if isinstance(value, dict) else {"detail": value}
    return {"detail": ""} | {name: str(text) for name, text in given.items() if text is not None}


def _line(error: Mapping[str, str]) -> str:
    place = error.get("pointer") or error.get("parameter") or "/"
    return f"  {place}: {error.get('detail', '')}"
