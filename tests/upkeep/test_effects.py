"""Outputs that were committed after their job had ended: reported, told from corruption, taken up."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from click.testing import CliRunner

from lucius.app.building import build
from lucius.app.runtime import Runtime
from lucius.app.settings import Settings
from lucius.app.upkeep import prune, verify
from lucius.cli.main import main
from lucius.core.inputs import CancelRequested
from lucius.platform import FatalError, Output, Service, ServiceRunner, Task
from tests.upkeep.installation import envelope


class Slow(Service):
    """Works until it is let go, whatever it hears; then commits, or fails as often as it was told."""

    name = "scripted"
    step_types = ("SCRIPTED",)

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.executed = 0

    async def execute(self, task: Task) -> Output | None:
        self.executed += 1
        if task.payload.get("fails"):
            raise FatalError("as told", code="TOLD")
        self.begun.set()
        await self.go.wait()
        await task.stage("output.txt", "late")
        return None


@asynccontextmanager
async def running(
    settings: Settings, service: Service, *, apart: bool = False
) -> AsyncIterator[Runtime]:
    """`apart`: the service is in a process of its own, as far as LUCIUS can tell."""
    runtime = await build(settings, () if apart else [service])
    runner = ServiceRunner(service, runtime.bus, runtime.workspace)
    async with runtime.running():
        if apart:
            await runner.start()
        yield runtime
        await runner.stop()


async def zombie(settings: Settings) -> str:
    """A job that was cancelled at once, and whose service committed afterwards."""
    service = Slow()
    async with running(settings, service, apart=True) as runtime:
        job_id = (await runtime.engine.submit(envelope(settings))).job_id
        await service.begun.wait()
        await runtime.engine.apply(job_id, CancelRequested(immediate=True))
        ended = await runtime.engine.ended(job_id, 60)
        assert ended is not None
        assert ended.state == "CANCELLED"
        service.go.set()
    return job_id


async def test_a_commit_after_an_immediate_cancel_is_reported_with_its_places(
    settings: Settings,
) -> None:
    job_id = await zombie(settings)
    (drift,) = await verify(settings)
    assert drift.kind == "effect_after_end"
    assert f"{job_id} has ended CANCELLED with scripted CANCELLED" in drift.detail
    assert f"{job_id}/scripted/output.txt" in drift.detail


async def test_the_command_exits_as_for_every_finding_and_names_the_kind(
    settings: Settings,
) -> None:
    await zombie(settings)
    words = ["verify", "--data", str(settings.data_dir)]
    plain = await asyncio.to_thread(CliRunner().invoke, main, words)
    machine = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--json"])
    assert (plain.exit_code, machine.exit_code) == (1, 1)
    assert plain.output.startswith("effect_after_end: ")
    assert [each["kind"] for each in json.loads(machine.stdout)["drift"]] == ["effect_after_end"]


async def test_a_redrive_takes_the_effect_up_and_executes_nothing(settings: Settings) -> None:
    job_id = await zombie(settings)
    service = Slow()
    async with running(settings, service) as runtime:
        again = (await runtime.engine.redrive(job_id)).job_id
        ended = await runtime.engine.ended(again, 60)
        assert ended is not None
        assert ended.state == "SUCCEEDED"
    assert service.executed == 0
    assert await verify(settings) == []


async def test_a_redrive_with_another_payload_is_another_effect(settings: Settings) -> None:
    job_id = await zombie(settings)
    async with running(settings, Slow()) as runtime:
        again = (await runtime.engine.redrive(job_id, payload={"fails": True})).job_id
        ended = await runtime.engine.ended(again, 60)
        assert ended is not None
        assert ended.state == "FAILED_FINAL"
    assert [drift.kind for drift in await verify(settings)] == ["effect_after_end"]


async def test_what_is_still_under_way_is_not_reported(settings: Settings) -> None:
    service = Slow()
    async with running(settings, service) as runtime:
        job_id = (await runtime.engine.submit(envelope(settings))).job_id
        await service.begun.wait()
        assert await verify(settings) == []
        service.go.set()
        await runtime.engine.ended(job_id, 60)
        assert await verify(settings) == []


async def test_an_embedded_service_commits_nothing_after_an_immediate_cancel(
    settings: Settings,
) -> None:
    service = Slow()
    async with running(settings, service) as runtime:
        job_id = (await runtime.engine.submit(envelope(settings))).job_id
        await service.begun.wait()
        await runtime.engine.apply(job_id, CancelRequested(immediate=True))
        service.go.set()
        again = (await runtime.engine.redrive(job_id, payload={"fails": False})).job_id
        ended = await runtime.engine.ended(again, 60)
    assert ended is not None
    assert (ended.state, service.executed) == ("SUCCEEDED", 2)
    assert await verify(settings) == []


async def test_pruning_the_job_removes_the_finding(settings: Settings) -> None:
    job_id = await zombie(settings)
    runtime = await build(settings, ())
    async with runtime.running():
        job = await runtime.engine.job(job_id)
    assert job is not None
    assert await prune(settings, job.updated_at + timedelta(seconds=1)) == 1
    assert await verify(settings) == []


async def test_a_redriven_job_answers_for_effects_of_a_root_that_was_pruned(
    settings: Settings,
) -> None:
    job_id = await zombie(settings)
    async with running(settings, Slow()) as runtime:
        again = (await runtime.engine.redrive(job_id)).job_id
        old, new = await runtime.engine.job(job_id), await runtime.engine.ended(again, 60)
    assert old is not None
    assert new is not None
    await prune(settings, new.updated_at)
    assert await verify(settings) == []
