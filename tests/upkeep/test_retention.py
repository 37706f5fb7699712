"""Retention deletes what nobody needs, and only below workspaces that are its own."""

import asyncio
import builtins
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.workspaces.local import LocalWorkspace
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.adapters.workspaces.records import Records
from lucius.app.adapters import job_workspaces, open_workspace
from lucius.app.building import build
from lucius.app.settings import Settings
from lucius.app.upkeep import prune, verify
from lucius.core.decide import submit
from lucius.core.errors import WorkspaceError
from lucius.core.job import Job
from lucius.operations import retention
from lucius.operations.retention import OWNER, JobWorkspaces, WorkspaceOwnedError, check_effects
from lucius.platform import FatalError, Output, Service, Task
from lucius.ports.ledger import Claim
from tests.services.scripted import Scripted
from tests.upkeep.installation import envelope, folder_of, job_folders, settings_in

TOMORROW = timedelta(days=1)


def second(tmp_path: Path, **environ: str) -> Settings:
    """Another installation on the workspaces of the first."""
    (tmp_path / "second").mkdir()
    shared = (tmp_path / "data" / "workspace").as_uri()
    return settings_in(tmp_path / "second", LUCIUS_WORKSPACE_URL=shared, **environ)


async def test_a_second_installation_on_the_same_workspaces_is_refused_at_the_start(
    settings: Settings, job: Job, tmp_path: Path
) -> None:
    other = second(tmp_path)
    with pytest.raises(WorkspaceOwnedError, match="LUCIUS_WORKSPACE_URL"):
        await build(other, [Scripted()])
    assert not (other.data_dir / "ledger.db").exists(), "nothing was opened"


async def test_its_retention_deletes_nothing_there(
    settings: Settings, job: Job, tmp_path: Path
) -> None:
    with pytest.raises(WorkspaceOwnedError):
        await prune(second(tmp_path), datetime.now(UTC) + TOMORROW)
    assert folder_of(settings, job).is_dir()
    assert await verify(settings) == []


async def test_another_system_has_workspaces_of_its_own(
    settings: Settings, job: Job, tmp_path: Path
) -> None:
    other = second(tmp_path, LUCIUS_SYSTEM="another")
    runtime = await build(other)
    async with runtime.running():
        pass
    assert await prune(other, datetime.now(UTC) + TOMORROW) == 0
    assert folder_of(settings, job).is_dir()


async def test_whoever_has_the_name_of_the_installation_goes_on(
    settings: Settings, job: Job, tmp_path: Path
) -> None:
    """After a restore of the ledger into another data directory, say."""
    other = second(tmp_path)
    other.data_dir.mkdir()
    name = (settings.data_dir / "installation").read_bytes()
    (other.data_dir / "installation").write_bytes(name)
    runtime = await build(other)
    async with runtime.running():
        pass
    mark = settings.data_dir / "workspace" / settings.system / OWNER
    assert json.loads(mark.read_text()) == {"installation": name.decode()}
    assert mark.parent.joinpath("acme").is_dir(), "no tenant can have the name of the mark"


# -- many at once ------------------------------------------------------------------------------


class Counted(MemoryWorkspace):
    """Knows how many removals ran together; `refused` cannot be removed."""

    refused = ""
    unlisted = ""
    running = most = 0

    async def remove(self, uri: str) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if self.refused and self.refused in uri:
            raise WorkspaceError("not this one")
        await super().remove(uri)

    async def list(self, prefix: str) -> list[str]:
        self._check(prefix)
        return await super().list(prefix)

    async def folders(self, uri: str) -> builtins.list[str]:
        self._check(uri)
        return await super().folders(uri)

    def _check(self, uri: str) -> None:
        if self.unlisted and self.unlisted in uri:
            raise WorkspaceError("not this one")


@pytest.fixture
async def many() -> JobWorkspaces:
    workspaces = JobWorkspaces(Counted(), "mem://jobs/lucius/", "one")
    for number in range(100):
        job_id = f"job_{number:032x}"
        record = json.dumps({"job_id": job_id}).encode()
        await workspaces.workspace.write(f"{workspaces.home}a/{job_id}/_commits/x.json", record)
    return workspaces


async def test_workspaces_are_removed_together(many: JobWorkspaces) -> None:
    """One by one, each waits for a commit and a sync of its own."""
    await retention.prune(MemoryLedger(), many, datetime.now(UTC))
    assert await many.workspace.folders(many.home) == []
    assert isinstance(many.workspace, Counted)
    assert many.workspace.most > 10


async def test_one_that_cannot_be_removed_keeps_no_other_from_it(
    many: JobWorkspaces, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(many.workspace, Counted)
    many.workspace.refused = f"job_{5:032x}"
    await retention.prune(MemoryLedger(), many, datetime.now(UTC))
    (left,) = [each async for each in many.folders()]
    assert many.workspace.refused in left
    assert f"{left} is removed later: not this one" in caplog.text


@pytest.mark.parametrize("unlisted", [f"job_{5:032x}", "/b/"])
async def test_one_that_cannot_be_looked_at_keeps_no_other_from_it_nor_from_being_verified(
    many: JobWorkspaces, caplog: pytest.LogCaptureFixture, unlisted: str
) -> None:
    assert isinstance(many.workspace, Counted)
    await many.workspace.write(f"{many.home}b/job_{7:032x}/_commits/x.json", b"?")
    many.workspace.unlisted = unlisted
    drifts = await check_effects(MemoryLedger(), many)
    assert len({drift.subject for drift in drifts}) == 100 + ("job" in unlisted)
    await retention.prune(MemoryLedger(), many, datetime.now(UTC))
    many.workspace.unlisted = ""
    (left,) = [each async for each in many.folders()]
    assert unlisted in left
    assert "not this one" in caplog.text


async def test_local_workspaces_commit_their_removals_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LocalWorkspace(tmp_path)
    workspaces = JobWorkspaces(local, f"{tmp_path.as_uri()}/lucius/", "one")
    for number in range(100):
        await local.create(f"{workspaces.home}a/job_{number:032x}/_commits/x.json", b"{}")
    commits: list[object] = []
    committed = Records._committed

    def counted(records: Records, asked: Any, patience: float) -> bool:
        commits.append(records)
        return committed(records, asked, patience)

    monkeypatch.setattr(Records, "_committed", counted)
    await retention.prune(MemoryLedger(), workspaces, datetime.now(UTC))
    assert await local.folders(workspaces.home) == []
    assert len(commits) < 20
    await local.close()


# -- what live jobs need -----------------------------------------------------------------------


async def redriven(root: Job) -> MemoryLedger:
    """A ledger in which the root is gone, and a redrive of it lives whose link was never written."""
    plan = replace(root.plan, job_id="job_zz", redrive_of=root.job_id, root_job_id=root.job_id)
    return await ledger_of(submit(plan, datetime.now(UTC)).job)


async def ledger_of(job: Job) -> MemoryLedger:
    ledger = MemoryLedger()
    await ledger.create(Claim(job.tenant_id, "claim", "body", keyed=True), job, ())
    return ledger


async def test_the_workspace_of_a_pruned_root_stays_while_a_redrive_lives(
    settings: Settings, job: Job
) -> None:
    workspaces = job_workspaces(settings, open_workspace(settings))
    before = datetime.now(UTC) + TOMORROW
    await retention.prune(await redriven(job), workspaces, before)
    assert folder_of(settings, job).is_dir()
    await retention.prune(MemoryLedger(), workspaces, before)
    assert not job_folders(settings)


async def test_a_workspace_stays_while_a_job_is_there_that_committed_in_it(
    settings: Settings,
) -> None:
    """The redrive has ended long since; it is kept, and its output lies where its chain began."""
    runtime = await build(settings, [Scripted()])
    async with runtime.running():
        first = (await runtime.engine.submit(envelope(settings, script=["fatal"]))).job_id
        root = await runtime.engine.ended(first, 30)
        assert root is not None
        again = (await runtime.engine.redrive(first, payload={})).job_id
        ended = await runtime.engine.ended(again, 30)
        assert ended is not None
        assert ended.state == "SUCCEEDED"
    ledger, workspaces = await ledger_of(ended), job_workspaces(settings, open_workspace(settings))
    assert await retention.unneeded(ledger, workspaces, datetime.now(UTC) + TOMORROW) == []


class Reader(Service):
    """Needs the output of the step before it; fails while its payload says so."""

    name, step_types = "reader", ("READER",)

    async def execute(self, task: Task) -> Output | None:
        if task.payload.get("fails"):
            raise FatalError("as told", code="TOLD")
        await task.stage("output.txt", await task.latest())
        return None


CHAIN = """
step_types: {SCRIPTED: {service: scripted}, READER: {service: reader}}
protocols: [{request_type: SCRIPTED, protocol_id: chain_v1, steps: [SCRIPTED, READER]}]
"""


async def test_redriven_jobs_find_what_they_need_after_a_kill_before_their_links_and_a_prune(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "protocols.yaml").write_text(CHAIN)
    runtime = await build(settings, [Scripted(), Reader()])
    async with runtime.running():
        root = (await runtime.engine.submit(envelope(settings, fails=True))).job_id
        await runtime.engine.ended(root, 30)
    killed = await build(settings)
    redriven = (await killed.engine.redrive(root, payload={})).job_id
    await killed.ledger.close()
    await prune(settings, datetime.now(UTC) + TOMORROW)
    runtime = await build(settings, [Scripted(), Reader()])
    async with runtime.running():
        job = await runtime.engine.ended(redriven, 30)
    assert job is not None
    assert (job.state, job.fault) == ("SUCCEEDED", None)
    assert await verify(settings) == []
