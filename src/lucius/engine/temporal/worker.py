"""The worker: it runs the workflows of jobs and their activities, and reaches the ledger by asking alone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lucius import __version__
from lucius.core.errors import WorkflowsUnavailableError
from lucius.engine.temporal.invoker_client import Asking, InvokerAnswer
from lucius.engine.temporal.metrics import UNANSWERED, UNKNOWN, OutcomeCounter, TemporalInstruments
from lucius.engine.temporal.workflow import CANCEL, PUBLISH, RECORD, TIMEOUT, JobWorkflow
from lucius.engine.temporal.workflows import TemporalPlace, tls_of

# The activities of a job's workflow. Each is one question to the invoker; a repetition asks the same.

Ask = Callable[[Mapping[str, Any]], Awaitable[InvokerAnswer | None]]


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


log = logging.getLogger("lucius.temporal")

LOOK_AGAIN: Final = 1.0
"""Seconds."""


async def keep_working(
    place: TemporalPlace,
    invoker: Asking,
    instruments: TemporalInstruments,
    check: Callable[[], Awaitable[None]],
) -> None:
    """For ever. A server that is away, or has no such namespace, is waited for, and named once."""
    said = ""
    while True:
        try:
            await check()
            said = ""
            await run_worker(place, invoker, instruments)
        except (RuntimeError, WorkflowsUnavailableError) as error:
            if str(error) != said:
                said = str(error)
                log.warning("workflows do not run here until this is mended: %s", said)
            await asyncio.sleep(LOOK_AGAIN)


async def run_worker(
    place: TemporalPlace, invoker: Asking, instruments: TemporalInstruments
) -> None:
    """Until it is cancelled. It raises where the server cannot be reached."""
    client = await Client.connect(
        place.address,
        namespace=place.namespace,
        tls=tls_of(place),
        api_key=place.api_key or None,
    )
    worker = Worker(
        client,
        task_queue=place.task_queue,
        workflows=[JobWorkflow],
        activities=Activities(invoker, instruments).all,
        interceptors=[OutcomeCounter(instruments)],
        workflow_runner=UnsandboxedWorkflowRunner(),  # the tests replay it in the sandbox
        build_id=f"lucius-{__version__}",  # else it is a hash of all that is imported, which takes seconds
    )
    await worker.run()
