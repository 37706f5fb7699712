"""Workflows are found by tenant, request type and state, on a real server."""

import asyncio
import json
import logging
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from lucius.app.temporal import provision_temporal
from lucius.cli.main import main
from lucius.core.inputs import CancelRequested
from lucius.engine.temporal.metrics import BROKEN
from lucius.engine.temporal.workflows import (
    NAMES,
    missing_attributes,
)
from tests.temporal.server import shared_server
from tests.temporal.test_bad_input import workflows_in
from tests.temporal.test_both_engines import Gated
from tests.temporal.world import (
    SERVICES,
    Scripted,
    closed,
    ended,
    envelope,
    running,
    settings_of,
)

pytestmark = pytest.mark.xdist_group("temporal")

LOOKS = 600


async def found(client: Client, query: str, job_id: str) -> None:
    """Until the list has it: the server writes it a little later."""
    for _ in range(LOOKS):
        if job_id in [each.id async for each in client.list_workflows(query)]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{job_id} is not found by {query}")


async def new_namespace(client: Client) -> str:
    """One that knows none of the attributes of jobs."""
    name = f"bare-{uuid4().hex[:8]}"
    kept = Duration(seconds=24 * 3600)
    asked = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=kept)
    await client.workflow_service.register_namespace(asked)
    address = client.service_client.config.target_host
    for _ in range(LOOKS):
        try:
            await missing_attributes(await Client.connect(address, namespace=name))
        except (RPCError, RuntimeError):
            await asyncio.sleep(0.1)
        else:
            return name
    raise AssertionError("the namespace does not come")


async def test_a_job_is_found_by_tenant_request_type_and_state(tmp_path: Path) -> None:
    server = shared_server()
    client = await server.client()
    first = Gated("alpha")
    services = [first, *(Scripted(name) for name in SERVICES[1:])]
    tenant = f"tenant-{uuid4().hex[:12]}"
    query = f"LuciusTenant = '{tenant}' AND LuciusRequestType = 'ALPHA->BETA->GAMMA'"
    async with running(settings_of(tmp_path, server), services) as (runtime, _):
        submitted = await runtime.engine.submit({**envelope(), "tenant_id": tenant})
        job_id = submitted.job_id
        await asyncio.wait_for(first.began.wait(), 120)
        await found(client, f"{query} AND LuciusState = 'IN_PROGRESS'", job_id)
        first.gate.set()
        await ended(runtime, job_id)
        await found(client, f"{query} AND LuciusState = 'SUCCEEDED'", job_id)
        others = [each.id async for each in client.list_workflows("LuciusTenant = 'nobody'")]
        assert job_id not in others


async def test_without_the_names_jobs_run_and_a_warning_names_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = shared_server()
    namespace = await new_namespace(await server.client())
    settings = settings_of(tmp_path, server, LUCIUS_TEMPORAL_NAMESPACE=namespace)
    with caplog.at_level(logging.WARNING, "lucius.temporal"):
        async with running(settings) as (runtime, _):
            await ended(runtime, (await runtime.engine.submit(envelope())).job_id)
    (warning,) = [each.getMessage() for each in caplog.records if each.name == "lucius.temporal"]
    assert "lucius temporal provision" in warning
    assert f"namespace {namespace}" in warning
    assert sorted(await provision_temporal(settings)) == sorted(NAMES)
    assert await provision_temporal(settings) == []


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (["LuciusState"], "registered the search attribute LuciusState\n"),
        ([], "nothing to change\n"),
    ],
)
def test_the_command_prints_what_it_registered(
    monkeypatch: pytest.MonkeyPatch, added: list[str], said: str
) -> None:
    async def provision(settings: object) -> list[str]:
        return added

    monkeypatch.setattr("lucius.app.temporal.provision_temporal", provision)
    assert CliRunner().invoke(main, ["temporal", "provision"]).stdout == said
    as_json = CliRunner().invoke(main, ["temporal", "provision", "--json"]).stdout
    assert json.loads(as_json) == {"changes": added}


async def test_a_failed_and_a_cancelled_job_are_found_by_the_status_of_their_workflow(
    tmp_path: Path,
) -> None:
    server = shared_server()
    client = await server.client()
    first = Gated("alpha")
    services = [first, *(Scripted(name) for name in SERVICES[1:])]
    tenant = f"tenant-{uuid4().hex[:12]}"
    mine = f"LuciusTenant = '{tenant}' AND ExecutionStatus"
    async with running(settings_of(tmp_path, server), services) as (runtime, _):
        given = {**envelope(), "tenant_id": tenant}
        cancelled = (await runtime.engine.submit(given)).job_id
        await asyncio.wait_for(first.began.wait(), 60)
        await runtime.engine.apply(cancelled, CancelRequested(immediate=True))
        first.gate.set()
        failing = {**envelope(beta={"final": True}), "tenant_id": tenant}
        failed = (await runtime.engine.submit(failing)).job_id
        assert await closed(client.get_workflow_handle(cancelled)) == {"state": "CANCELLED"}
        ended_as = await closed(client.get_workflow_handle(failed))
        assert (ended_as["state"], ended_as["error"]["code"]) == ("FAILED_FINAL", "NO_GOOD")
        await found(client, f"{mine} = 'Canceled'", cancelled)
        await found(client, f"{mine} = 'Failed'", failed)
        counted = workflows_in(runtime).instruments.ended.cells
        assert counted[("CANCELLED",)] == counted[("FAILED_FINAL",)] == 1
        assert counted[(BROKEN,)] == 0
