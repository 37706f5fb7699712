"""What users of the API import."""

from lucius.client.client import (
    DEFAULT_URL,
    ENDED,
    Client,
    ClientError,
    ProblemError,
    UnreachableError,
)

__all__ = [
    "DEFAULT_URL",
    "ENDED",
    "Client",
    "ClientError",
    "ProblemError",
    "UnreachableError",
]
