"""What users of the API import. The models of answers are in `lucius.client.models`."""

from typing import TYPE_CHECKING, Any

from lucius.client import models
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
from lucius.contract.words import JobState, StepState

if TYPE_CHECKING:
    from lucius.client.models import Command
else:

    def __getattr__(name: str) -> Any:
        """Loaded when it is first used, as every model."""
        if name != "Command":
            raise AttributeError(f"module {__name__} has no attribute {name}")
        return models.Command


__all__ = [
    "DEFAULT_URL",
    "ENDED",
    "BlockingClient",
    "Client",
    "ClientError",
    "Command",
    "Conflict",
    "Forbidden",
    "Invalid",
    "JobState",
    "NotFound",
    "ProblemError",
    "Saturated",
    "StepState",
    "Unauthenticated",
    "Unavailable",
    "UnreachableError",
]
