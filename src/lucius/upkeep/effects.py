"""Effects that no job answers for: commit records in the workspace, held against the ledger."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.job import Job
from lucius.core.states import StepState
from lucius.core.wire import effect_key
from lucius.platform.commit import COMMITS, CommitRecord
from lucius.ports.ledger import Drift, JobQuery, Ledger

PAGE: Final = 500


class Suspect(NamedTuple):
    """A record that its own job does not answer for: it is gone, or ended without that success."""

    path: Path
    record: CommitRecord
    root: str
    job: Job | None


async def check_effects(ledger: Ledger, folders: Sequence[Path]) -> list[Drift]:
    """`folders` are the workspaces of jobs; the record of an effect lies where the effect began."""
    drifts: list[Drift] = []
    suspects: list[Suspect] = []
    for folder in folders:
        for path in sorted((folder / COMMITS).glob("*.json")):
            try:
                record = CommitRecord.decoded(path.read_bytes())
            except (ValueError, KeyError, TypeError) as error:
                drifts.append(Drift("commit_record_corrupt", str(path), str(error)))
                continue
            try:
                job = await ledger.load(record.job_id)
            except (LedgerRowUnreadableError, LedgerTooNewError):
                continue  # nobody here knows what it answers for
            if job is None or not _answers_for(job, record):
                suspects.append(Suspect(path, record, folder.name, job))
    return drifts + await _unanswered(ledger, suspects)


def _answers_for(job: Job, record: CommitRecord) -> bool:
    """Whether the effect is a result of this job, or may still become one."""
    index = job.plan.index_of(record.step_id)
    if index is None:
        return False
    plan = job.plan
    own = effect_key(plan.root, record.step_id, plan.input_ref, plan.payload_of(record.step_id))
    state = job.steps[index].state
    return own == record.effect_key and (state is StepState.SUCCEEDED or not job.terminal)


async def _unanswered(ledger: Ledger, suspects: Sequence[Suspect]) -> list[Drift]:
    """A job that was redriven may have taken an effect up, so all of that origin are asked."""
    if not suspects:
        return []
    family: dict[str, list[Job]] = {each.root: [] for each in suspects}
    async for job in every_job(ledger):
        if job.plan.root in family:
            family[job.plan.root].append(job)
    return [
        _drift(each)
        for each in suspects
        if not any(_answers_for(job, each.record) for job in family[each.root])
    ]


def _drift(suspect: Suspect) -> Drift:
    record, job = suspect.record, suspect.job
    if job is None:
        detail = f"there is no job {record.job_id}"
        return Drift("effect_without_job", str(suspect.path), detail)
    index = job.plan.index_of(record.step_id)
    state = "unknown" if index is None else job.steps[index].state.value
    places = ", ".join(target for each in record.promotions for target in each.targets)
    detail = (
        f"{job.job_id} has ended {job.state.value} with {record.step_id} {state}, but attempt"
        f" {record.attempt_no} ({record.lease_id}) has committed {places or 'no outputs'}"
    )
    return Drift("effect_after_end", str(suspect.path), detail)


async def every_job(ledger: Ledger) -> AsyncIterator[Job]:
    cursor: str | None = None
    while True:
        page = await ledger.list(JobQuery(limit=PAGE, cursor=cursor))
        for job in page.jobs:
            yield job
        cursor = page.next_cursor
        if cursor is None:
            return
