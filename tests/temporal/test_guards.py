"""Guards of the Temporal engine that nothing else would miss: each test fails when its guard is taken out."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from lucius.app.background_tasks import Chores
from lucius.core.effects import SignalWorkflow
from lucius.core.errors import LedgerRowUnreadableError, WorkflowsUnavailableError
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job, JobState
from lucius.core.plan import FIRST_SHARD, OUTBOX, TEMPORAL
from lucius.core.routing import LANES
from lucius.engine.temporal.engine import TemporalEngine, WorkflowStarter
from lucius.engine.temporal.invoker_client import InvokerAnswer, RemoteInvoker
from lucius.engine.temporal.metrics import TemporalInstruments
from lucius.engine.temporal.worker import Activities
from lucius.engine.temporal.workflows import TemporalPlace, TemporalWorkflows, start_of
from lucius.operations.retention import JobWorkspaces
from lucius.ports.lanes import FixedLanes
from tests.faults.stage import Orchestrator, Stage
from tests.temporal.virtual import VirtualServer, VirtualWorker
from tests.virtual import VirtualLoop, run_virtually

INVOKERS = FixedLanes(range(FIRST_SHARD[TEMPORAL], FIRST_SHARD[TEMPORAL] + LANES))
"""What invokers own between them; nothing of the outbox engine."""
OTHERS = FixedLanes(range(FIRST_SHARD[TEMPORAL] + 1, FIRST_SHARD[TEMPORAL] + LANES))


def on_temporal(body: Any) -> Any:
    async def main(loop: VirtualLoop) -> None:
        stage = Stage(loop, TEMPORAL)
        try:
            await body(stage, await stage.orchestrator())
        finally:
            await stage.end_everything()

    def test() -> None:
        run_virtually(main)

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


async def ended(stage: Stage, lucius: Orchestrator) -> Job:
    job_id = await lucius.submit()
    await lucius.engine.apply(job_id, CancelRequested())
    await asyncio.sleep(60)
    return await stage.finished(job_id)


# -- what one invoker does for all -----------------------------------------------------------------


async def chore(stage: Stage, lucius: Orchestrator, lanes: FixedLanes, what: str) -> None:
    """For a quarter of an hour."""
    chores = Chores(lucius.engine, stage.ledger, lanes, now=stage.loop.now)
    works = {
        "prune": lambda: chores.prune(
            JobWorkspaces(stage.workspace, "mem://workspace/lucius/", "x"), timedelta(minutes=5)
        ),
        "repair": lambda: chores.repair(stage.temporal.workflows(stage.loop.now)),
    }
    task = asyncio.create_task(works[what]())
    await asyncio.sleep(900)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@on_temporal
async def test_the_invoker_that_owns_the_first_shard_prunes_and_no_other(
    stage: Stage, lucius: Orchestrator
) -> None:
    job = await ended(stage, lucius)
    await chore(stage, lucius, OTHERS, "prune")
    assert await stage.ledger.load(job.job_id) is not None
    await chore(stage, lucius, INVOKERS, "prune")
    assert await stage.ledger.load(job.job_id) is None


@on_temporal
async def test_the_invoker_that_owns_the_first_shard_repairs_and_no_other(
    stage: Stage, lucius: Orchestrator
) -> None:
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    await puppet.ack(await puppet.take())
    await stage.until(job_id, lambda job: not job.owed)
    await stage.temporal.executions.pop(job_id).close()
    await chore(stage, lucius, OTHERS, "repair")
    assert job_id not in stage.temporal.executions
    await chore(stage, lucius, INVOKERS, "repair")
    assert job_id in stage.temporal.executions


class Claims:
    """A ledger that can have claims without a job."""

    def __init__(self) -> None:
        self.swept = 0

    async def sweep(self, now: object) -> int:
        self.swept += 1
        return 0


@on_temporal
async def test_the_invoker_that_owns_the_first_shard_sweeps_claims_and_no_other(
    stage: Stage, lucius: Orchestrator
) -> None:
    for lanes, often in ((OTHERS, 0), (INVOKERS, 10)):
        chores, claims = Chores(lucius.engine, stage.ledger, lanes, now=stage.loop.now), Claims()
        task = asyncio.create_task(chores.sweep(cast(Any, claims)))
        await asyncio.sleep(601)
        task.cancel()
        assert claims.swept == often


# -- the workflow ------------------------------------------------------------------------------------


class Deaf:
    """An invoker that answers every question with the same snapshot."""

    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        self.asked = 0
        self._told = {"status": "ok", "outcome": "superseded", "snapshot": snapshot}

    async def attempt(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
        self.asked += 1
        assert self.asked < 1000, "time would stand still"
        return self._told

    publish = timeout = attempt


@on_temporal
async def test_a_workflow_whose_asking_changes_nothing_does_not_spin(
    stage: Stage, lucius: Orchestrator
) -> None:
    job = await stage.job(await lucius.submit())
    server = VirtualServer(stage.loop.now)
    start = start_of(replace(job, plan=replace(job.plan, job_id="deaf")), stage.loop.now())
    deaf = Deaf(start["snapshot"])
    server.join(VirtualWorker(deaf))
    await server.start_workflow(None, start, id="deaf")
    await asyncio.sleep(3600)
    assert 100 < deaf.asked < 150, "twice as long each time, up to 30 seconds"
    await server.close()


@on_temporal
async def test_a_signal_that_comes_late_does_not_set_the_workflow_back(
    stage: Stage, lucius: Orchestrator
) -> None:
    puppet = await stage.puppet()
    job_id = await lucius.submit()
    await stage.asked(job_id)
    old = await stage.job(job_id)
    directive = await puppet.take()
    await puppet.ack(directive)
    await asyncio.sleep(5)
    workflows = stage.temporal.workflows(stage.loop.now)
    standing = await workflows.standing(job_id)
    await workflows.signal(old, SignalWorkflow("late", "step_ack", "ocr"))
    await asyncio.sleep(1)
    assert await workflows.standing(job_id) == standing


async def test_a_job_that_the_invoker_does_not_know_is_not_asked_for_again() -> None:
    class Empty(Deaf):
        async def attempt(self, body: Mapping[str, Any]) -> InvokerAnswer | None:
            return None

    asking = Activities(Empty({}), TemporalInstruments())
    with pytest.raises(ApplicationError, match="knows no job") as caught:
        await ActivityEnvironment().run(asking.record_attempt_lease, {"jobId": "job_none"})
    assert caught.value.non_retryable


# -- starting and signalling -------------------------------------------------------------------------


class Lost:
    """A server without the namespace."""

    def get_workflow_handle(self, workflow_id: str) -> "Lost":
        return self

    async def signal(self, *args: Any, **how: Any) -> None:
        raise RPCError("Namespace nowhere is not found.", RPCStatusCode.NOT_FOUND, b"")

    async def describe(self, **how: Any) -> None:
        await self.signal()


@on_temporal
async def test_a_namespace_that_is_gone_settles_no_signal_and_ends_no_workflow(
    stage: Stage, lucius: Orchestrator
) -> None:
    job = await stage.job(await lucius.submit())
    place = TemporalPlace("nowhere:7233", "nowhere", "queue")
    workflows = TemporalWorkflows(cast(Client, Lost()), place, now=stage.loop.now)
    with pytest.raises(WorkflowsUnavailableError, match="no namespace nowhere"):
        await workflows.signal(job, SignalWorkflow("s", "wake", ""))
    with pytest.raises(WorkflowsUnavailableError, match="no namespace nowhere"):
        await workflows.fate(job.job_id)


@on_temporal
async def test_the_sweep_passes_over_a_row_that_cannot_be_read(
    stage: Stage, lucius: Orchestrator
) -> None:
    stage.temporal.away = True
    jobs = [await lucius.submit(number=number) for number in range(2)]
    await lucius.kill()
    stage.temporal.away = False
    load = stage.ledger.load

    async def unreadable(job_id: str) -> Job | None:
        if job_id == jobs[0]:
            raise LedgerRowUnreadableError(job_id, "it is damaged")
        return await load(job_id)

    stage.ledger.load = unreadable  # type: ignore[method-assign]
    workflows = stage.temporal.workflows(stage.loop.now)
    assert await WorkflowStarter(workflows, stage.ledger, now=stage.loop.now).sweep() == 1
    assert list(stage.temporal.executions) == jobs[1:]


# -- between processes -------------------------------------------------------------------------------


async def test_an_invoker_that_may_have_done_it_is_not_passed_over() -> None:
    """Only one that takes no connection was asked nothing."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        raise httpx.ReadTimeout("no answer")

    remote = RemoteInvoker(["http://one", "http://two"], "", httpx.MockTransport(answer))
    with pytest.raises(WorkflowsUnavailableError, match="no answer"):
        await remote.timeout({"jobId": "job_1"})
    assert len(asked) == 1
    await remote.close()


def test_what_a_job_on_the_outbox_engine_is_told_stays_here() -> None:
    async def main(loop: VirtualLoop) -> None:
        stage = Stage(loop, OUTBOX)
        lucius = await stage.orchestrator()
        nobody = RemoteInvoker([], "")
        engine = TemporalEngine(lucius.engine, nobody)
        applied = await engine.apply(await lucius.submit(), CancelRequested(immediate=True))
        assert applied is not None
        assert applied.job.state is JobState.CANCELLED
        await nobody.close()
        await stage.end_everything()

    run_virtually(main)


def test_a_timer_of_a_job_whose_lane_is_elsewhere_goes_to_its_owner() -> None:
    """Who does not own the lane cannot know whether a directive only waits behind others."""

    async def main(loop: VirtualLoop) -> None:
        stage = Stage(loop, TEMPORAL)
        lucius = await stage.orchestrator()
        await stage.puppet()
        job_id = await lucius.submit()
        await stage.until(job_id, lambda job: job.steps[0].unacked)
        stranger = lucius.invoker(FixedLanes(()))
        await asyncio.sleep(25)
        told = await stranger.timeout(job_id)
        assert told is not None
        assert told.outcome == "held"
        assert told.job.steps[0].unacked
        await stage.end_everything()

    run_virtually(main)
