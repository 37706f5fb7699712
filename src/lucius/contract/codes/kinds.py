"""What is known of an error code."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemCode:
    code: str
    status: int
    title: str
    explanation: str
    action: str
    retry_after: bool = False
