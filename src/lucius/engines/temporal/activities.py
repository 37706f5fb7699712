"""The activities of a job's workflow. Each is one question to the invoker; a repetition asks the same."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from lucius.engines.temporal.asking import Asking, Told
from lucius.engines.temporal.metrics import UNANSWERED, UNKNOWN, TemporalInstruments
from lucius.engines.temporal.workflow import CANCEL, PUBLISH, RECORD, TIMEOUT

Ask = Callable[[Mapping[str, Any]], Awaitable[Told | None]]


class Activities:
    def __init__(self, invoker: Asking, instruments: TemporalInstruments) -> None:
        self._invoker = invoker
        self._instruments = instruments

    @activity.defn(name=RECORD)
    async def record_attempt_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        """Record the attempt, and publish it where the window has room: one round trip."""
        return await self._told(RECORD, self._invoker.attempt, body)

    @activity.defn(name=PUBLISH)
    async def publish_directive(self, body: dict[str, Any]) -> dict[str, Any]:
        return await self._told(PUBLISH, self._invoker.publish, body)

    @activity.defn(name=TIMEOUT)
    async def report_timeout(self, body: dict[str, Any]) -> dict[str, Any]:
        return await self._told(TIMEOUT, self._invoker.timeout, body)

    @activity.defn(name=CANCEL)
    async def cancel_workflow(self, body: dict[str, Any]) -> None:
        """Ask the server to cancel the workflow, whose job was cancelled."""
        workflow_id = activity.info().workflow_id
        assert workflow_id is not None, "it is asked by a workflow alone"
        await activity.client().get_workflow_handle(workflow_id).cancel()

    async def _told(self, name: str, ask: Ask, body: dict[str, Any]) -> dict[str, Any]:
        """UNKNOWN_JOB is final: asking again would not change it."""
        if activity.info().attempt > 1 or not activity.info().is_local:
            self._instruments.repeats.add(name)
        try:
            told = await ask(body)
        except Exception:
            self._instruments.asked(name, UNANSWERED)
            raise
        self._instruments.asked(name, told["outcome"] if told is not None else UNKNOWN)
        if told is None:
            said = f"the invoker knows no job {body['jobId']} with this step"
            raise ApplicationError(said, type="UNKNOWN_JOB", non_retryable=True)
        return dict(told)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        asking = (self.record_attempt_lease, self.publish_directive, self.report_timeout)
        return (*asking, self.cancel_workflow)
