"""What is known of an error code, and the kinds of operations that answer with it."""

from dataclasses import dataclass
from enum import StrEnum


class Operations(StrEnum):
    """Kinds of operations, for codes that all of a kind answer with."""

    ALL = "every operation"
    WITH_BODY = "every operation that takes a body"
    WITH_QUERY = "every operation that takes query parameters"
    WITH_ROLE = "every operation that needs a role"
    OF_A_JOB = "every operation whose path names a job"
    CALLBACKS = "every callback"
    FOR_ALL_TENANTS = "every operation for callers that are bound to no tenant"
    NOT_FOR_MONITORS = "every operation but `GET /healthz` and `GET /readyz`"
    UNROUTED = "a request that no operation takes"


@dataclass(frozen=True, slots=True)
class ProblemCode:
    code: str
    status: int
    title: str
    explanation: str
    action: str
    answered_by: tuple[Operations | str, ...]
    """Kinds of operations, and single ones by the name of their handler."""
    retry_after: bool = False

    @property
    def page(self) -> str:
        """The file of its reference page."""
        return f"{self.code}.md"
