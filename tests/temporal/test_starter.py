"""Who starts workflows: the process that created the job, at once; else the sweep of any orchestrator."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
from temporalio.client import Client

from lucius.adapters.configs.files import FileConfig
from lucius.core.errors import WorkflowsUnavailableError
from lucius.core.job import Job
from lucius.core.plan import TEMPORAL
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.loop import Listener
from lucius.engine.temporal import engine
from lucius.engine.temporal.engine import AT_ONCE, WorkflowStarter
from lucius.engine.temporal.workflows import TemporalPlace, TemporalWorkflows
from lucius.ports.lanes import NO_LANES
from tests.engine.world import envelope
from tests.faults.stage import Stage
from tests.virtual import VirtualLoop, run_virtually
from tests.wiring import outbox

MANY = 3 * AT_ONCE


class Counting(TemporalWorkflows):
    """Counts what is asked of the server. `refused`: a job that it never takes."""

    asked = 0
    refused = ""
    error: Exception = WorkflowsUnavailableError("not this one")

    async def start(self, job: Job) -> None:
        self.asked += 1
        if job.job_id == self.refused:
            raise self.error
        await super().start(job)


async def created(stage: Stage, jobs: int, listeners: Sequence[Listener] = ()) -> None:
    """By an orchestrator, which owns no lane."""
    ingress = Ingress(FileConfig(), IngressPolicy(engine=TEMPORAL))
    parts = outbox(
        stage.ledger,
        stage.bus,
        ingress,
        now=stage.loop.now,
        lanes=NO_LANES,
        listeners=listeners,
    )
    for number in range(jobs):
        await parts.engine.submit(envelope(number=number))


Story = Callable[[Stage, Counting, WorkflowStarter], Awaitable[None]]


def told(story: Story) -> None:
    async def main(loop: VirtualLoop) -> None:
        stage = Stage(loop, TEMPORAL)
        place = TemporalPlace("virtual", "default", "virtual")
        workflows = Counting(cast(Client, stage.temporal), place, now=loop.now)
        await story(stage, workflows, WorkflowStarter(workflows, stage.ledger, now=loop.now))
        await stage.end_everything()

    run_virtually(main)


def test_the_sweep_starts_all_that_was_left() -> None:
    async def story(stage: Stage, workflows: Counting, starting: WorkflowStarter) -> None:
        await created(stage, MANY)
        assert await starting.sweep() == MANY
        assert len(stage.temporal.executions) == MANY

    told(story)


def test_while_the_server_is_away_the_sweep_does_not_try_every_job() -> None:
    """Each try would wait for its own timeout."""

    async def story(stage: Stage, workflows: Counting, starting: WorkflowStarter) -> None:
        await created(stage, MANY)
        stage.temporal.away = True
        assert await starting.sweep() == workflows.asked == AT_ONCE

    told(story)


@pytest.mark.parametrize("error", [WorkflowsUnavailableError("not this one"), ValueError("id")])
def test_a_job_that_cannot_be_started_does_not_hold_up_the_others(error: Exception) -> None:
    async def story(stage: Stage, workflows: Counting, starting: WorkflowStarter) -> None:
        workflows.error = error
        await created(stage, MANY)
        workflows.refused = next(iter(stage.ledger.jobs))
        assert await starting.sweep() == MANY
        assert len(stage.temporal.executions) == MANY - 1

    told(story)


def test_a_job_is_started_where_it_was_created_and_more_than_can_wait_there_by_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "MOST_WAITING", 2)

    async def story(stage: Stage, workflows: Counting, starting: WorkflowStarter) -> None:
        await created(stage, 3, [starting.listen])
        running = asyncio.create_task(starting.run())
        await asyncio.sleep(1)
        assert len(stage.temporal.executions) == 2
        await asyncio.sleep(engine.PAUSE.total_seconds())
        assert len(stage.temporal.executions) == 3
        running.cancel()

    told(story)
