"""Effects and outputs: the commit records of the workspaces, held against ledger and storage."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError, WorkspaceError
from lucius.core.job import Job
from lucius.core.states import JobState, StepState
from lucius.core.wire import effect_key
from lucius.platform.commit import COMMITS, CommitRecord
from lucius.ports.ledger import Drift, JobQuery, Ledger
from lucius.ports.workspace import Digest, Restores, Workspace
from lucius.upkeep.job_workspaces import JobWorkspaces, name_of

PAGE: Final = 500
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
    own = effect_key(plan.root, record.step_id, plan.input_ref, plan.payload_of(record.step_id))
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
        page = await ledger.list(replace(query or JobQuery(), limit=PAGE, cursor=cursor))
        for job in page.jobs:
            yield job
        cursor = page.next_cursor
        if cursor is None:
            return
