"""What users of the API import."""

from lucius.client.blocking import BlockingClient
from lucius.client.client import Client
from lucius.client.errors import (
    ClientError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ProblemError,
    Saturated,
    Unauthenticated,
    Unavailable,
    UnreachableError,
)
from lucius.contract import DEFAULT_URL, ENDED

__all__ = [
    "DEFAULT_URL",
    "ENDED",
    "BlockingClient",
    "Client",
    "ClientError",
    "Conflict",
    "Forbidden",
    "Invalid",
    "NotFound",
    "ProblemError",
    "Saturated",
    "Unauthenticated",
    "Unavailable",
    "UnreachableError",
]
