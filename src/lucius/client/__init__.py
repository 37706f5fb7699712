"""What users of the API import."""

from lucius.client.blocking import BlockingClient
from lucius.client.client import DEFAULT_URL, ENDED, Client
from lucius.client.errors import ClientError, ProblemError, UnreachableError

__all__ = [
    "DEFAULT_URL",
    "ENDED",
    "BlockingClient",
    "Client",
    "ClientError",
    "ProblemError",
    "UnreachableError",
]
