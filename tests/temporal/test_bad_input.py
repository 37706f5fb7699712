"""What is wrong around a job on Temporal: a clear error, and nothing lost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDReusePolicy

from lucius.app import building
from lucius.app.runtime import Runtime
from lucius.app.settings import Settings
from lucius.app.temporal import open_workflows, place_of
from lucius.core.effects import SignalWorkflow
from lucius.core.errors import RequestError, WorkflowsUnavailableError
from lucius.core.job import JobState
from lucius.core.plan import TEMPORAL
from lucius.engine.temporal.invoker import Invoker
from lucius.engine.temporal.invoker_client import AskingHere, InvokerAnswer, RemoteInvoker
from lucius.engine.temporal.metrics import BROKEN, CLOSED, UNANSWERED, UNKNOWN, UNREACHED
from lucius.engine.temporal.worker import run_worker
from lucius.engine.temporal.workflow import RECORD, TIMEOUT
from lucius.engine.temporal.workflows import TemporalWorkflows
from lucius.platform import FatalError, Output, Task
from lucius.ports.ledger import JobQuery
from tests.conformance.jobs import make
from tests.temporal.server import TemporalServer, shared_server
from tests.temporal.test_crashes import ONE_EACH, directives
from tests.temporal.world import (
    SERVICES,
    Scripted,
    closed,
    ended,
    envelope,
    running,
    settings_of,
    submitted,
)

pytestmark = pytest.mark.xdist_group("temporal")

LARGE = 60_000
"""Characters of a payload, and more bytes than the history of a job may have."""
WAKE = SignalWorkflow("signal-1", "wake", "")


async def workflows_of(settings: Settings) -> TemporalWorkflows:
    opened = await open_workflows(settings)
    assert isinstance(opened, TemporalWorkflows)
    return opened


def workflows_in(runtime: Runtime) -> TemporalWorkflows:
    assert isinstance(runtime.workflows, TemporalWorkflows)
    return runtime.workflows


# -- workflows that nobody knows, or that have ended ---------------------------------------------


async def test_a_workflow_of_a_job_that_nobody_knows_ends_and_says_so(tmp_path: Path) -> None:
    """Somebody started it by hand. It does not ask for ever."""
    server = shared_server()
    client = await server.client()
    settings = settings_of(tmp_path, server)
    async with running(settings) as (runtime, _):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(
                "LuciusJob",
                {"jobId": "job_unknown", "tenant_id": "acme", "snapshot": None},
                id=f"by-hand-{uuid4().hex}",
                task_queue=settings.temporal_task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            )
        instruments = workflows_in(runtime).instruments
        assert "knows no job job_unknown" in str(failed.value.__cause__.__cause__)  # type: ignore[union-attr]
        assert instruments.ended.cells[(BROKEN,)] >= 1
        assert instruments.asks.cells[TIMEOUT, UNKNOWN] >= 1


async def test_a_signal_for_a_workflow_that_is_closed_or_never_was_is_counted_and_no_error(
    tmp_path: Path,
) -> None:
    server = shared_server()
    client = await server.client()
    async with running(settings_of(tmp_path, server)) as (runtime, _):
        job = await ended(runtime, await submitted(runtime, envelope()))
        await client.get_workflow_handle(job.job_id).result()
        workflows = workflows_in(runtime)
        before = workflows.instruments.signals.cells["wake", CLOSED]
        await workflows.signal(job, WAKE)
        await workflows.signal(make(uuid4(), engine=TEMPORAL).job, WAKE)
        assert workflows.instruments.signals.cells["wake", CLOSED] == before + 2


# -- a namespace that is wrong ---------------------------------------------------------------------


async def test_in_a_namespace_that_is_missing_nothing_counts_as_delivered(tmp_path: Path) -> None:
    """A workflow that is not found there has not ended: its signal stays owed."""
    server = shared_server()
    await server.client()
    settings = settings_of(tmp_path, server, LUCIUS_TEMPORAL_NAMESPACE="nowhere")
    workflows, job = await workflows_of(settings), make(1, engine=TEMPORAL).job
    for attempted in (workflows.signal(job, WAKE), workflows.start(job), workflows.check()):
        with pytest.raises(WorkflowsUnavailableError, match="LUCIUS_TEMPORAL_NAMESPACE"):
            await attempted
    assert workflows.instruments.signals.cells["wake", UNREACHED] == 1
    assert workflows.instruments.starts.cells[(UNREACHED,)] == 1


# -- who is away -------------------------------------------------------------------------------------


async def test_a_job_that_is_submitted_while_temporal_is_down_runs_when_it_is_back(
    tmp_path: Path,
) -> None:
    server = TemporalServer()
    try:
        async with running(settings_of(tmp_path, server)) as (runtime, bus):
            accepted = await runtime.engine.submit(envelope())
            assert (accepted.state, accepted.duplicate) == ("QUEUED", False)
            with pytest.raises(WorkflowsUnavailableError, match=server.address):
                await runtime.process_health.checks()["temporal"]()
            server.start()
            await server.client()
            job = await ended(runtime, accepted.job_id)
            assert job.state is JobState.SUCCEEDED
            assert directives(bus) == ONE_EACH
    finally:
        server.remove()


class AwayFirst(AskingHere):
    """The invoker cannot be reached for the first three questions."""

    def __init__(self, invoker: Invoker) -> None:
        super().__init__(invoker)
        self._away = RemoteInvoker(["http://127.0.0.1:1"], "")
        self.asked = 0

    async def attempt(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        self.asked += 1
        asking = self._away.attempt if self.asked <= 3 else super().attempt
        return await asking(body)


async def test_an_invoker_that_is_away_is_asked_again_for_the_same_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(settings: Settings, workflows: TemporalWorkflows, invoker: Invoker) -> None:
        await run_worker(place_of(settings), AwayFirst(invoker), workflows.instruments)

    server = shared_server()
    await server.client()
    monkeypatch.setattr(building, "work", work)
    async with running(settings_of(tmp_path, server)) as (runtime, bus):
        job = await ended(runtime, await submitted(runtime, envelope()))
        assert job.state is JobState.SUCCEEDED
        assert directives(bus) == ONE_EACH
        instruments = workflows_in(runtime).instruments
        assert instruments.asks.cells[RECORD, UNANSWERED] >= 3
        assert instruments.repeats.cells[(RECORD,)] >= 3


# -- what is too large for Temporal ----------------------------------------------------------------


async def history_bytes(client: Client, job_id: str) -> int:
    history = await client.get_workflow_handle(job_id).fetch_history()
    return sum(event.ByteSize() for event in history.events)


async def test_payloads_do_not_go_through_temporal_however_large_they_are(tmp_path: Path) -> None:
    """Temporal takes 2 MB of one payload: a workflow holds states, leases and waits alone."""
    server = shared_server()
    client = await server.client()
    async with running(settings_of(tmp_path, server)) as (runtime, _):
        with pytest.raises(RequestError) as refused:
            await runtime.engine.submit(envelope(alpha={"text": "x" * (3 * 2**20)}))
        assert refused.value.code == "PAYLOAD_TOO_LARGE"
        assert await runtime.engine.count(JobQuery()) == 0
        part = {"text": "x" * (LARGE // 3)}
        large = envelope(alpha=part, beta=part, gamma=part)
        job = await ended(runtime, await submitted(runtime, large))
        assert job.state is JobState.SUCCEEDED
        await client.get_workflow_handle(job.job_id).result()
        assert await history_bytes(client, job.job_id) < LARGE


class Verbose(Scripted):
    async def execute(self, task: Task) -> Output:
        raise FatalError("x" * (3 * 2**20), code="TOO_MUCH_TO_SAY")


async def test_an_answer_of_three_megabytes_reaches_the_workflow_cut_short(tmp_path: Path) -> None:
    server = shared_server()
    client = await server.client()
    services = [Verbose("alpha"), *(Scripted(name) for name in SERVICES[1:])]
    async with running(settings_of(tmp_path, server), services) as (runtime, _):
        job = await ended(runtime, await submitted(runtime, envelope()))
        assert job.state is JobState.FAILED_FINAL
        result = await closed(client.get_workflow_handle(job.job_id))
        assert result["error"]["code"] == "TOO_MUCH_TO_SAY"
        assert await history_bytes(client, job.job_id) < LARGE


# -- keys and TLS ------------------------------------------------------------------------------------


async def test_a_key_is_not_sent_to_a_server_without_tls(tmp_path: Path) -> None:
    server = shared_server()
    await server.client()
    workflows = await workflows_of(settings_of(tmp_path, server, LUCIUS_TEMPORAL_API_KEY="k" * 20))
    with pytest.raises(WorkflowsUnavailableError, match=server.address):
        await workflows.check()
