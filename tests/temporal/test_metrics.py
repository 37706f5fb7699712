"""What one job on Temporal counts, and how late a signal is."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from temporalio.client import Client

from lucius.core.effects import SignalWorkflow
from lucius.core.job import Owed
from lucius.core.plan import TEMPORAL
from lucius.engine.temporal.workflow import RECORD
from lucius.engine.temporal.workflows import TemporalPlace, TemporalWorkflows
from tests.conformance.jobs import at, make
from tests.temporal.server import shared_server
from tests.temporal.world import closed, ended, envelope, running, settings_of, submitted

pytestmark = pytest.mark.xdist_group("temporal")


async def test_a_job_counts_its_start_its_signals_its_questions_and_its_end(tmp_path: Path) -> None:
    server = shared_server()
    client = await server.client()
    async with running(settings_of(tmp_path, server)) as (runtime, _):
        job = await ended(runtime, await submitted(runtime, envelope()))
        await client.get_workflow_handle(job.job_id).result()
        assert isinstance(runtime.workflows, TemporalWorkflows)
        counted = runtime.workflows.instruments
        assert sum(counted.starts.cells.values()) >= 1
        assert counted.asks.cells[RECORD, "applied"] >= 1
        assert counted.ended.cells[("SUCCEEDED",)] >= 1
        assert counted.signals.cells["step_result", "delivered"] >= 3
        assert counted.signal_lag.count("step_result") >= 3
        scraped = generate_latest(runtime.registry).decode()
    assert all(f"# HELP {each.name.removesuffix('_total')}" in scraped for each in counted.all())


async def test_a_silent_service_counts_the_timers_that_fired(tmp_path: Path) -> None:
    server = shared_server()
    client = await server.client()
    settings = settings_of(
        tmp_path, server, LUCIUS_ACK_TIMEOUT_SECONDS="0.2", LUCIUS_MAX_ATTEMPTS="1"
    )
    async with running(settings, ()) as (runtime, _):
        job = await ended(runtime, await submitted(runtime, envelope()))
        await closed(client.get_workflow_handle(job.job_id))
        assert isinstance(runtime.workflows, TemporalWorkflows)
        counted = runtime.workflows.instruments
        assert sum(counted.timeouts.cells.values()) >= 1
        assert counted.ended.cells[("FAILED_FINAL",)] >= 1


@pytest.mark.parametrize(("tries", "seconds"), [(1, 2), (2, 7), (3, 37), (4, 67)])
async def test_the_lag_of_a_signal_counts_the_waits_between_its_tries(
    tries: int, seconds: float
) -> None:
    """After 5 s, then every 30 s; the last try began when the job was last saved."""
    client = await Client.connect("127.0.0.1:1", lazy=True)
    place = TemporalPlace("127.0.0.1:1", "default", "queue")
    job = make(1, engine=TEMPORAL).job
    owed = Owed("signal-1", "signal_workflow", "pause", tries, job.updated_at)
    workflows = TemporalWorkflows(client, place, now=lambda: job.updated_at + timedelta(seconds=2))
    late = replace(job, owed=(owed,), updated_at=at(0))
    assert workflows._lag(late, SignalWorkflow("signal-1", "pause", "")) == seconds
