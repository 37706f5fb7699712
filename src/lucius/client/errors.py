"""What the client raises."""

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """The root of what this client raises."""


class UnreachableError(ClientError):
    """The server could not be reached, or did not answer."""


class ProblemError(ClientError):
    """The server refused the request. `code` is stable and has a reference page.

    `errors` has one entry for each bad field: `pointer` or `parameter`, and `detail`.
    """

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(document.get("code", "UNKNOWN"))
        self.detail = str(document.get("detail", ""))
        self.errors: list[dict[str, str]] = list(document.get("errors", ()))
        more = [line for line in map(_line, self.errors) if line.strip() not in self.detail]
        self.lines = [f"{self.code}: {self.detail}", *more]
        super().__init__("\n".join(self.lines))


def _line(error: Mapping[str, str]) -> str:
    place = error.get("pointer") or error.get("parameter") or "/"
    return f"  {place}: {error.get('detail', '')}"
