"""Status answers, which the broker sends instead of a message."""

from typing import Final

from nats.aio.msg import Msg

from lucius.core.errors import BusUnavailableError
from lucius.core.record import record

GOES_ON: Final = "100"
ENDS: Final = ("404", "408")
"""There are no messages, or none came in time."""


@record
class Status:
    code: str
    text: str

    @property
    def consumer_gone(self) -> bool:
        """Someone deleted it, or the broker came back without its storage."""
        return self.code == "503" or "Consumer Deleted" in self.text


def status_of(message: Msg) -> Status:
    headers = message.headers or {}
    return Status(headers.get("Status", ""), headers.get("Description", ""))


class NothingDeliveredError(BusUnavailableError):
    def __init__(self, status: Status) -> None:
        why = status.text or "the subscription is not on the broker"
        super().__init__(f"NATS delivers nothing: {status.code} {why}")
        self.status = status
