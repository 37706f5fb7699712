"""Retention: jobs that ended long ago are deleted, and then the workspaces that no job needs."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from lucius.core.errors import (
    LedgerRowUnreadableError,
    LedgerTooNewError,
    LuciusError,
    WorkspaceError,
)
from lucius.core.ids import accepted_at
from lucius.core.job import TERMINAL_JOB, Job, JobState, StepState
from lucius.core.wire import effect_of
from lucius.platform.commit import COMMITS, REDRIVES, CommitRecord
from lucius.ports.ledger import Drift, JobQuery, Ledger
from lucius.ports.workspace import Digest, Restores, Workspace

# The workspaces of an installation's jobs: where they lie, and whose they are.

OWNER: Final = ".owner.json"
"""Beside the tenants' folders, none of which begins with a dot."""


class WorkspaceOwnedError(LuciusError):
    """The workspaces are those of another installation, which would lose them to our retention."""


@dataclass(frozen=True, slots=True)
class JobWorkspaces:
    """`home` is `<LUCIUS_WORKSPACE_URL>/<LUCIUS_SYSTEM>/`; `<tenant>/<jobId>/` are below it."""

    workspace: Workspace
    home: str
    installation: str

    @property
    def served(self) -> bool:
        """Whether they are in a storage that this process can reach at all."""
        return self.workspace.writable(self.home + OWNER)

    async def claim(self) -> None:
        """Say whose they are, at first use. WorkspaceOwnedError: they are another installation's."""
        mark = self.home + OWNER
        if not self.served:
            return
        own = json.dumps({"installation": self.installation}).encode()
        if await self.workspace.create(mark, own) or await self.workspace.read(mark) == own:
            return
        raise WorkspaceOwnedError(
            f"{self.home} has the workspaces of another installation, named in {mark}: give each its"
            " own LUCIUS_WORKSPACE_URL or LUCIUS_SYSTEM. If this one takes the other's place, copy the"
            " file `installation` from its data directory, or delete the mark"
        )

    async def folders(self) -> AsyncIterator[str]:
        """The workspace of each job, by its URI with a slash at its end.

        A tenant's folder that cannot be listed is named, and hides no other's.
        """
        if not self.served:
            return
        for tenant in await self.workspace.folders(self.home):
            try:
                found = await self.workspace.folders(tenant)
            except WorkspaceError as error:
                log.warning("the workspaces in %s are passed over: %s", tenant, error)
                continue
            for folder in found:
                if name_of(folder).startswith("job_"):
                    yield folder

    async def remove(self, folder: str) -> None:
        """One that cannot be removed is named, and keeps no other from it."""
        try:
            await self.workspace.remove(folder)
        except WorkspaceError as error:
            log.warning("the workspace %s is removed later: %s", folder, error)


def name_of(folder: str) -> str:
    """The id of the job whose workspace it is."""
    return folder.rstrip("/").rpartition("/")[2]


# Effects and outputs: the commit records of the workspaces, held against ledger and storage.

RECORDS_PAGE: Final = 500
MOST_DRIFTS: Final = 10_000


class Found(NamedTuple):
    """A commit record, where it lies, and the root of the jobs that share its workspace."""

    uri: str
    record: CommitRecord
    root: str


class Suspect(NamedTuple):
    """A record that its own job does not answer for: it is gone, or ended without that success."""

    found: Found
    job: Job | None


async def check_effects(ledger: Ledger, workspaces: JobWorkspaces) -> list[Drift]:
    """Every record has a job that answers for it, and its outputs are where it says."""
    drifts: list[Drift] = []
    async for drift in _drifts(ledger, workspaces):
        drifts.append(drift)
        if len(drifts) == MOST_DRIFTS:
            more = f"only the first {MOST_DRIFTS} are listed"
            return [*drifts, Drift("more", workspaces.home, more)]
    return drifts


async def _drifts(ledger: Ledger, workspaces: JobWorkspaces) -> AsyncIterator[Drift]:
    workspace = workspaces.workspace
    suspects: list[Suspect] = []
    async for each in _records(workspaces):
        if isinstance(each, Drift):
            yield each
            continue
        try:
            job = await ledger.load(each.record.job_id)
        except (LedgerRowUnreadableError, LedgerTooNewError):
            continue  # nobody here knows what it answers for
        if job is None or not _answers_for(job, each.record):
            suspects.append(Suspect(each, job))
        elif job.state is JobState.SUCCEEDED:
            async for drift in _outputs(workspace, job, each.record):
                yield drift
        if len(suspects) == MOST_DRIFTS:
            break
    async for drift in _judged(ledger, workspace, suspects):
        yield drift


async def _records(workspaces: JobWorkspaces) -> AsyncIterator[Found | Drift]:
    """One workspace at a time: the record of an effect lies where the effect began."""
    async for folder in workspaces.folders():
        steps: dict[str, str] = {}
        try:
            uris = await workspaces.workspace.list(folder + COMMITS)
        except WorkspaceError as error:
            yield Drift("commit_record_corrupt", folder + COMMITS, str(error))
            continue
        for uri in uris:
            try:
                record = CommitRecord.decoded(await workspaces.workspace.read(uri) or b"")
            except (ValueError, KeyError, TypeError, WorkspaceError) as error:
                yield Drift("commit_record_corrupt", uri, str(error))
                continue
            for target in (each for promotion in record.promotions for each in promotion.targets):
                other = steps.setdefault(target, record.step_id)
                if other != record.step_id:
                    detail = (
                        f"is the output of both {other} and {record.step_id} of {name_of(folder)}"
                    )
                    yield Drift("outputs_collide", target, detail)
            yield Found(uri, record, name_of(folder))


def _answers_for(job: Job, record: CommitRecord) -> bool:
    """Whether the effect is a result of this job, or may still become one."""
    index = job.plan.index_of(record.step_id)
    if index is None:
        return False
    plan = job.plan
    carried = plan.carried.get(record.step_id)
    if carried is not None:
        return bool(carried.result_ref == record.output_ref)
    own = effect_of(plan, record.step_id, plan.payload_of(record.step_id))
    state = job.steps[index].state
    return own == record.effect_key and (state is StepState.SUCCEEDED or not job.terminal)


# -- outputs ---------------------------------------------------------------------------------


async def _outputs(workspace: Workspace, job: Job, record: CommitRecord) -> AsyncIterator[Drift]:
    """What a job that succeeded has committed is still there, and is still the same."""
    for promotion in record.promotions:
        for target in promotion.targets:
            said = (
                f"{job.job_id} has committed {_shown(promotion.digest)} there in {record.step_id}"
            )
            try:
                standing = await workspace.digest(target)
            except WorkspaceError as error:
                yield Drift("output_unreadable", target, f"{said}: {error}")
                continue
            if standing is None:
                yield Drift("output_gone", target, f"{said}, and there is nothing")
            elif standing != promotion.digest:
                yield Drift("output_changed", target, f"{said}, and there are {_shown(standing)}")


def _shown(digest: Digest) -> str:
    return f"{digest.size} bytes (sha256 {digest.sha256[:12]})"


def unrestored(workspaces: JobWorkspaces) -> list[Drift]:
    """Outputs that a loss of power took, and whose places cannot be written now."""
    workspace = workspaces.workspace
    return [
        Drift(
            "output_not_restored",
            Path(each.path).as_uri(),
            f"a loss of power took this output of {each.job_id}, and it cannot be written again:"
            f" {each.reason}. Clear the place and restart LUCIUS",
        )
        for each in (workspace.unrestored() if isinstance(workspace, Restores) else ())
    ]


# -- effects without an answer ---------------------------------------------------------------


async def _judged(
    ledger: Ledger, workspace: Workspace, suspects: Sequence[Suspect]
) -> AsyncIterator[Drift]:
    """A job that was redriven may have taken an effect up, so all of that origin are asked."""
    family: dict[str, list[Job]] = {each.found.root: [] for each in suspects}
    if family:
        async for job in every_job(ledger):
            if job.plan.root in family:
                family[job.plan.root].append(job)
    for found, own in suspects:
        heirs = [each for each in family[found.root] if _answers_for(each, found.record)]
        done = next((each for each in heirs if each.state is JobState.SUCCEEDED), None)
        if not heirs:
            yield await _unanswered(workspace, found, own)
        elif done is not None:
            async for drift in _outputs(workspace, done, found.record):
                yield drift


async def _unanswered(workspace: Workspace, found: Found, job: Job | None) -> Drift:
    record = found.record
    if job is None:
        return Drift("effect_without_job", found.uri, f"there is no job {record.job_id}")
    index = job.plan.index_of(record.step_id)
    state = "unknown" if index is None else job.steps[index].state.value
    detail = (
        f"{job.job_id} has ended {job.state.value} with {record.step_id} {state}, but attempt"
        f" {record.attempt_no} ({record.lease_id}) has committed {await _places(workspace, record)}"
    )
    return Drift("effect_after_end", found.uri, detail)


async def _places(workspace: Workspace, record: CommitRecord) -> str:
    """Where its outputs stand: not where another effect has taken their place since."""
    standing = [
        target
        for promotion in record.promotions
        for target in promotion.targets
        if await _digest(workspace, target) == promotion.digest
    ]
    return ", ".join(standing) or "outputs that stand nowhere"


async def _digest(workspace: Workspace, uri: str) -> Digest | None:
    try:
        return await workspace.digest(uri)
    except WorkspaceError:
        return None


async def every_job(ledger: Ledger, query: JobQuery | None = None) -> AsyncIterator[Job]:
    cursor: str | None = None
    while True:
        page = await ledger.list(replace(query or JobQuery(), limit=RECORDS_PAGE, cursor=cursor))
        for job in page.jobs:
            yield job
        cursor = page.next_cursor
        if cursor is None:
            return


log = logging.getLogger("lucius")
PAGE: Final = 256
PAUSE: Final = 0.01
"""Seconds between two portions."""
AT_ONCE: Final = 64
"""Workspaces that are looked at, or removed, together: a local one commits their records together too."""
LIVE: Final = tuple(state for state in JobState if state not in TERMINAL_JOB)


async def prune(
    ledger: Ledger,
    workspaces: JobWorkspaces,
    before: datetime,
    *,
    forget: Callable[[], None] = lambda: None,
) -> int:
    """Delete jobs that ended before that and owe nothing, then the workspaces that nobody needs.

    In short transactions with pauses, so that the ledger may be in use. `forget`: called once the
    jobs are gone, so that nobody begins anything from a copy. Returns how many jobs were deleted.
    """
    await workspaces.claim()
    page = await ledger.prune(before, PAGE)
    deleted = page.deleted
    while page.cursor is not None:
        await asyncio.sleep(PAUSE)
        page = await ledger.prune(before, PAGE, page.cursor)
        deleted += page.deleted
    if deleted:
        forget()
    unused = await unneeded(ledger, workspaces, before)
    for start in range(0, len(unused), AT_ONCE):
        portion = unused[start : start + AT_ONCE]
        await asyncio.gather(*(workspaces.remove(folder) for folder in portion))
    return deleted


async def unneeded(ledger: Ledger, workspaces: JobWorkspaces, before: datetime) -> list[str]:
    """Workspaces of jobs that are gone and that no other job works in, or has its output in.

    A redriven job works in the workspace of the job where its chain began. It says so itself from
    its acceptance on, whether or not the jobs before it have been told.
    """
    found: list[str] = []
    old: list[str] = []
    async for folder in workspaces.folders():
        at = accepted_at(name_of(folder))
        if at is not None and at < before:
            old.append(folder)
    for start in range(0, len(old), AT_ONCE):
        portion = old[start : start + AT_ONCE]
        used = await asyncio.gather(*(_is_used(ledger, workspaces, each) for each in portion))
        found += [each for each, is_used in zip(portion, used, strict=True) if is_used is False]
        if used.count(None) == len(used):
            break  # the storage is away
    if not found:
        return found
    roots = {job.plan.root async for job in every_job(ledger, JobQuery(states=LIVE))}
    return [folder for folder in found if name_of(folder) not in roots]


async def _is_used(ledger: Ledger, workspaces: JobWorkspaces, folder: str) -> bool | None:
    """Whether its job, or another one that has committed something in this workspace, is still there.

    None: it cannot be looked at, which keeps no other from being removed.
    """
    try:
        return await _has_a_job(ledger, workspaces, folder)
    except WorkspaceError as error:
        log.warning("the workspace %s is looked at later: %s", folder, error)
        return None


async def _has_a_job(ledger: Ledger, workspaces: JobWorkspaces, folder: str) -> bool:
    if not await _is_gone(ledger, name_of(folder)):
        return True
    workspace = workspaces.workspace
    names: set[str] = set()
    for part in (COMMITS, REDRIVES):
        for uri in await workspace.list(folder + part):
            with suppress(ValueError, KeyError, TypeError):
                names.add(json.loads(await workspace.read(uri) or b"")["job_id"])
    for job_id in names - {name_of(folder)}:
        if not await _is_gone(ledger, job_id):
            return True
    return False


async def _is_gone(ledger: Ledger, job_id: str) -> bool:
    """What cannot be read is still there."""
    try:
        return await ledger.load(job_id) is None
    except (LedgerRowUnreadableError, LedgerTooNewError):
        return False
