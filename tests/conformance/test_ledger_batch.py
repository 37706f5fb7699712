"""Saving many jobs together: each lands or fails as if it had come alone, and is answered exactly once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.core.decide import decide
from lucius.core.errors import LedgerError, LedgerUnavailableError
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.ports.ledger import (
    Created,
    Duplicate,
    JobCreate,
    JobSave,
    Ledger,
    LimitReached,
    Limits,
    Write,
    WriteOutcome,
)
from tests.conformance.jobs import Made, at, make
from tests.conformance.ledger_registry import ADAPTERS, BULK, DURABLE, EXACT_LIMITS, Harness
from tests.conformance.on_every import on_every


async def outcomes(ledger: Ledger, writes: Sequence[Write]) -> list[WriteOutcome]:
    """In the order of the writes. Each was answered once, before `save_all` returned."""
    found: list[tuple[int, WriteOutcome]] = []
    await ledger.save_all(writes, found.extend)
    assert len(found) == len(writes)
    by_place = dict(found)
    return [by_place[place] for place in range(len(writes))]


def created(made: Made, limits: Limits | None = None) -> JobCreate:
    return JobCreate(made.claim, made.job, made.events, limits or Limits())


def cancelled(job: Job) -> JobSave:
    decision = decide(job, CancelRequested(immediate=True), at(1))
    return JobSave(decision.job, job.version, decision.events)


@on_every(ADAPTERS)
async def test_a_save_from_an_old_version_fails_alone(on: Harness) -> None:
    first, second = await on.create(make(1)), await on.create(make(2))
    moved = cancelled(first)
    assert await on.ledger.save(moved.job, moved.expected, moved.events)
    assert await outcomes(on.ledger, [cancelled(first), cancelled(second)]) == [False, True]
    assert await on.ledger.load(first.job_id) == moved.job
    assert (await on.ledger.load(second.job_id)) == cancelled(second).job
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_a_job_that_cannot_be_stored_fails_alone(on: Harness) -> None:
    taken, good = make(1), make(2)
    await on.create(taken)
    twice = replace(taken.job, plan=replace(taken.job.plan))
    again = JobCreate(make(3).claim, twice, taken.events)
    bad, fine = await outcomes(on.ledger, [again, created(good)])
    assert isinstance(bad, LedgerError), "ids are never used twice"
    assert fine == Created()
    assert await on.ledger.load(taken.job.job_id) == taken.job
    assert await on.ledger.load(good.job.job_id) == good.job


@on_every(ADAPTERS)
async def test_of_two_creates_of_one_request_one_lands(on: Harness) -> None:
    one, other = make(1), make(1)
    other = replace(other, job=replace(other.job, plan=replace(other.job.plan, job_id="job_other")))
    answers = await outcomes(on.ledger, [created(one), created(other)])
    assert Created() in answers
    assert {type(each) for each in answers} == {Created, Duplicate}


@on_every(ADAPTERS, EXACT_LIMITS)
async def test_limits_count_what_the_same_batch_has_created(on: Harness) -> None:
    answers = await outcomes(on.ledger, [created(make(n), Limits(total=2)) for n in range(3)])
    assert answers == [Created(), Created(), LimitReached("total")]


@on_every(ADAPTERS, DURABLE)
async def test_what_a_batch_has_saved_is_durable(on: Harness) -> None:
    new = [make(n) for n in range(5)]
    assert await outcomes(on.ledger, [created(made) for made in new]) == [Created()] * 5
    reopened = await on.reopen()
    assert [await reopened.load(made.job.job_id) for made in new] == [made.job for made in new]


@on_every(ADAPTERS, BULK)
async def test_a_large_batch_is_answered_as_a_small_one(on: Harness) -> None:
    new = [make(n) for n in range(300)]
    assert await outcomes(on.ledger, [created(made) for made in new]) == [Created()] * 300
    assert (await on.ledger.inflight()).total == 300


# -- SQLite: one commit, one answer -----------------------------------------------------------


async def test_a_batch_is_one_commit_and_one_answer(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    commits, answers = list[str](), list[int]()
    ledger._writing()._conn.set_trace_callback(commits.append)
    await ledger.save_all([created(make(n)) for n in range(5)], lambda a: answers.append(len(a)))
    await ledger.close()
    assert (commits.count("COMMIT"), answers) == (1, [5])


async def test_content_that_has_no_json_fails_alone(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    bad, good = make(1, extra={"x": object()}), make(2)
    failed, fine = await outcomes(ledger, [created(bad), created(good)])
    await ledger.close()
    assert isinstance(failed, Exception)
    assert fine == Created()


async def test_a_closed_ledger_answers_every_write(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    await ledger.close()
    for outcome in await outcomes(ledger, [cancelled(make(1).job), created(make(2))]):
        assert isinstance(outcome, LedgerUnavailableError)
