"""The activities of a job's workflow. Each is one question to the invoker; a repetition asks the same."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from lucius.engines.temporal.asking import Asking, Told
from lucius.engines.temporal.workflow import PUBLISH, RECORD, TIMEOUT


class Activities:
    def __init__(self, invoker: Asking) -> None:
        self._invoker = invoker

    @activity.defn(name=RECORD)
    async def record_attempt_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        """Record the attempt, and publish it where the window has room: one round trip."""
        return _found(await self._invoker.attempt(body), body)

    @activity.defn(name=PUBLISH)
    async def publish_directive(self, body: dict[str, Any]) -> dict[str, Any]:
        return _found(await self._invoker.publish(body), body)

    @activity.defn(name=TIMEOUT)
    async def report_timeout(self, body: dict[str, Any]) -> dict[str, Any]:
        return _found(await self._invoker.timeout(body), body)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.record_attempt_lease, self.publish_directive, self.report_timeout)


def _found(told: Told | None, body: Mapping[str, Any]) -> dict[str, Any]:
    if told is None:
        said = f"the invoker knows no job {body['jobId']} with this step"
        raise ApplicationError(said, type="UNKNOWN_JOB", non_retryable=True)
    return dict(told)
