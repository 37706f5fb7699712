"""The worker: it runs the workflows of jobs and their activities, and reaches the ledger by asking alone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lucius import __version__
from lucius.core.errors import WorkflowsUnavailableError
from lucius.engines.temporal.activities import Activities
from lucius.engines.temporal.asking import Asking
from lucius.engines.temporal.metrics import OutcomeCounter, TemporalInstruments
from lucius.engines.temporal.workflow import JobWorkflow
from lucius.engines.temporal.workflows import TemporalPlace, tls_of

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
