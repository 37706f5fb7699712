"""The port of the worker: what an activity asks of the invoker, in this process or over HTTP."""

from collections.abc import Mapping
from typing import Any, Protocol

from lucius.core.inputs import AttemptRequested
from lucius.engines.temporal.invoker import Answered, Invoker

Told = Mapping[str, Any]
"""`{"status": "ok", "outcome": ..., "snapshot": {...}}`"""


class Asking(Protocol):
    """None: there is no such job or step. Any other failure raises, and the activity is tried again."""

    async def attempt(self, body: Mapping[str, Any]) -> Told | None: ...

    async def publish(self, body: Mapping[str, Any]) -> Told | None: ...

    async def timeout(self, body: Mapping[str, Any]) -> Told | None: ...


class AskingHere:
    """Worker and invoker are one process."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    async def attempt(self, body: Mapping[str, Any]) -> Told | None:
        publish = bool(body.get("publish"))
        return self._told(await self._invoker.attempt(body["jobId"], asked(body), publish=publish))

    async def publish(self, body: Mapping[str, Any]) -> Told | None:
        return self._told(await self._invoker.publish(body["jobId"], asked(body)))

    async def timeout(self, body: Mapping[str, Any]) -> Told | None:
        return self._told(await self._invoker.timeout(body["jobId"]))

    def _told(self, answered: Answered | None) -> Told | None:
        return self._invoker.told(answered) if answered is not None else None


def asked(body: Mapping[str, Any]) -> AttemptRequested:
    return AttemptRequested(body["stepId"], body["attempt_no"], body["lease_id"])
