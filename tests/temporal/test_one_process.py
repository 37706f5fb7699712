"""One process on a real Temporal server: a job is created, its workflow runs it, its rows tell."""

from pathlib import Path

import httpx
import pytest

from lucius.app.temporal import place_of
from lucius.core.errors import WorkflowsUnavailableError
from lucius.core.job import JobState
from lucius.engine.temporal.workflows import tls_of
from tests.temporal.server import shared_server
from tests.temporal.world import ended, envelope, running, settings_of, submitted

pytestmark = pytest.mark.xdist_group("temporal")


async def test_a_job_of_three_steps_succeeds(tmp_path: Path) -> None:
    server = shared_server()
    client = await server.client()
    settings = settings_of(
        tmp_path,
        server,
        LUCIUS_TEMPORAL_ENABLED="true",
        LUCIUS_TEMPORAL_ADDRESS=server.address,
        LUCIUS_TEMPORAL_TASK_QUEUE="queue-of-this-test",
    )
    async with running(settings) as (runtime, _):
        job_id = await submitted(runtime, envelope())
        job = await ended(runtime, job_id)
        assert job.state is JobState.SUCCEEDED
        assert job.plan.engine == "temporal"
        handle = client.get_workflow_handle(job_id)
        assert (await handle.result())["state"] == "SUCCEEDED"
        assert (await handle.describe()).task_queue == "queue-of-this-test"


async def test_a_job_whose_workflow_runs_too_long_fails_with_a_code_of_its_own(
    tmp_path: Path,
) -> None:
    server = shared_server()
    await server.client()
    settings = settings_of(tmp_path, server, LUCIUS_TEMPORAL_WORKFLOW_EXECUTION_TIMEOUT="1")
    async with running(settings, ()) as (runtime, _):
        job = await ended(runtime, await submitted(runtime, envelope()))
        assert job.state is JobState.FAILED_FINAL
        assert job.fault is not None
        assert job.fault.code == "WORKFLOW_TIMEOUT"


async def test_a_namespace_that_is_missing_is_named_by_readyz(tmp_path: Path) -> None:
    server = shared_server()
    await server.client()
    settings = settings_of(tmp_path, server, LUCIUS_TEMPORAL_NAMESPACE="nowhere")
    async with running(settings) as (runtime, _):
        transport = httpx.ASGITransport(runtime.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert "no namespace nowhere" in answer.json()["checks"]["temporal"]


async def test_a_server_that_is_away_is_named_by_readyz(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, None, LUCIUS_TEMPORAL_ENABLED="true")
    settings = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    async with running(settings) as (runtime, _):
        with pytest.raises(WorkflowsUnavailableError, match=r"127\.0\.0\.1:1"):
            await runtime.process_health.checks()["temporal"]()


def test_a_key_goes_over_tls_alone(tmp_path: Path) -> None:
    plain = place_of(settings_of(tmp_path, None))
    assert (tls_of(plain), plain.api_key) == (False, "")
    guarded = place_of(settings_of(tmp_path, None, LUCIUS_TEMPORAL_API_KEY="k" * 20))
    assert tls_of(guarded)
    assert guarded.api_key == "k" * 20
