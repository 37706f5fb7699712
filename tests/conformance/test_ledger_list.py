"""Lists of jobs: newest first, by any filter, page after page, while new jobs arrive."""

import asyncio
from dataclasses import replace

import pytest

from lucius.core.errors import RequestError
from lucius.core.inputs import CancelRequested, Dismissed, Redriven
from lucius.core.job import Fault, Job, JobState
from lucius.core.text import fingerprint
from lucius.ports.ledger import JobQuery
from tests.conformance.jobs import ack_of, at, failure_of, life_of, make
from tests.conformance.ledger_registry import ADAPTERS, BULK, Harness
from tests.conformance.on_every import on_every

TENANTS = ("tenant_a", "tenant_b", "tenant_c")
TYPES = (("OCR", "EMBEDDING", "SIS"), ("SIS",))
JOBS = 36
IN_OCR = fingerprint("ocr", Fault("BROKEN", "the page cannot be read"))


async def fill(on: Harness) -> list[Job]:
    """Every tenant has jobs of every type that are held, succeeded, failed and cancelled."""
    jobs = []
    for n in range(JOBS):
        tenant, types = TENANTS[n % 3], TYPES[n // 3 % 2]
        made = make(n, tenant, types=types, released=n // 6 % 4 != 0, now=at(n))
        job = await on.create(made)
        match n // 6 % 4:
            case 1:
                for decision in life_of(job, n):
                    job = await on.save(decision)
            case 2:
                job = await on.apply(job, ack_of(job))
                job = await on.apply(job, failure_of(job))
            case 3:
                job = await on.apply(job, CancelRequested(immediate=True))
        jobs.append(job)
    return jobs


async def walk(on: Harness, query: JobQuery) -> list[Job]:
    """All pages of a query; a page may be short, but never longer than asked."""
    found: list[Job] = []
    while True:
        page = await on.ledger.list(query)
        assert len(page.jobs) <= query.limit
        found += page.jobs
        if page.next_cursor is None:
            return found
        query = replace(query, cursor=page.next_cursor)


QUERIES = (
    JobQuery(),
    JobQuery(tenant_ids=["tenant_a"]),
    JobQuery(tenant_ids=["tenant_c", "tenant_a"]),
    JobQuery(tenant_ids=["nobody"]),
    JobQuery(tenant_ids=["/" * 256]),
    JobQuery(tenant_ids=[]),
    JobQuery(states=[JobState.SUCCEEDED]),
    JobQuery(states=[JobState.SUCCEEDED, JobState.CANCELLED]),
    JobQuery(states=[]),
    JobQuery(request_type="SIS"),
    JobQuery(request_type="NONE"),
    JobQuery(dlq=True),
    JobQuery(dlq=True, tenant_ids=["tenant_b"]),
    JobQuery(dlq=True, request_type="SIS"),
    JobQuery(created_from=at(10)),
    JobQuery(created_to=at(10)),
    JobQuery(created_from=at(10), created_to=at(20), tenant_ids=["tenant_a", "tenant_b"]),
    JobQuery(tenant_ids=["tenant_a"], states=[JobState.FAILED_FINAL, JobState.DISPATCHING]),
    JobQuery(tenant_ids=["tenant_a"], states=[JobState.SUCCEEDED], request_type="SIS"),
    JobQuery(states=[JobState.SUCCEEDED], request_type="SIS", created_to=at(30)),
    JobQuery(tenant_ids=[f"tenant_{n}" for n in range(100)] + ["tenant_a"]),
    JobQuery(
        tenant_ids=[f"tenant_{n}" for n in range(100)] + ["tenant_a"],
        states=[JobState.CANCELLED],
    ),
    JobQuery(codes=["BROKEN"]),
    JobQuery(codes=["OTHER"], dlq=True),
    JobQuery(group=IN_OCR, tenant_ids=["tenant_a", "tenant_b"]),
    JobQuery(services=["sis-service"], dlq=True),
    JobQuery(steps=["ocr", "fax"]),
    JobQuery(steps=["sis"], codes=["BROKEN", "OTHER"], request_type="SIS"),
)


def wanted(query: JobQuery, job: Job) -> bool:
    plan = job.plan
    return (
        (query.tenant_ids is None or job.tenant_id in query.tenant_ids)
        and (query.states is None or job.state in query.states)
        and query.request_type in (None, plan.request_type)
        and (query.created_from or at(-1)) <= plan.accepted_at < (query.created_to or at(10**6))
        and (not query.dlq or job.in_dlq)
        and wanted_inside(query, job)
    )


def wanted_inside(query: JobQuery, job: Job) -> bool:
    """Every job that failed did so in its first step, and every live one is held there."""
    first, failed = job.plan.steps[0], job.state is JobState.FAILED_FINAL
    touched = failed or job.state is JobState.DISPATCHING
    return (
        (query.codes is None or (failed and "BROKEN" in query.codes))
        and (query.group is None or (failed and first.step_id == "ocr"))
        and (query.steps is None or (touched and first.step_id in query.steps))
        and (query.services is None or (touched and first.service in query.services))
    )


@on_every(ADAPTERS)
async def test_every_filter_finds_what_it_names_newest_first(on: Harness) -> None:
    jobs = await fill(on)
    limits = (1, 4, JOBS, 100) if BULK in on.capabilities else (4, 100)
    for query in QUERIES:
        expected = [job for job in reversed(jobs) if wanted(query, job)]
        for limit in limits:
            assert await walk(on, replace(query, limit=limit)) == expected, query


@on_every(ADAPTERS)
async def test_a_count_is_of_all_that_match_whatever_the_page(on: Harness) -> None:
    jobs = await fill(on)
    for query in QUERIES:
        expected = sum(wanted(query, job) for job in jobs)
        assert await on.ledger.count(replace(query, limit=2)) == expected, query


@on_every(ADAPTERS)
async def test_a_walk_sees_each_job_once_while_new_ones_arrive(on: Harness) -> None:
    jobs = await fill(on)
    query, found = JobQuery(limit=5), list[str]()
    for n in range(JOBS):
        page = await on.ledger.list(query)
        found += (job.job_id for job in page.jobs)
        if page.next_cursor is None:
            break
        query = replace(query, cursor=page.next_cursor)
        await on.create(make(f"new {n}", now=at(JOBS + n)))
    assert found == [job.job_id for job in reversed(jobs)]


@on_every(ADAPTERS)
async def test_jobs_of_one_instant_are_all_found_in_a_fixed_order(on: Harness) -> None:
    jobs = [await on.create(make(n)) for n in range(7)]
    assert await walk(on, JobQuery(limit=2)) == jobs[::-1]


@on_every(ADAPTERS, BULK)
async def test_a_page_is_not_empty_because_many_newer_jobs_are_of_another_kind(on: Harness) -> None:
    wanted = [await on.create(make("wanted", types=("SIS",), now=at(0)))]
    others = [make(n, types=("OCR",), now=at(n)) for n in range(1, 520)]
    await asyncio.gather(*(on.create(made) for made in others))
    page = await on.ledger.list(JobQuery(tenant_ids=["tenant_a"], request_type="SIS"))
    assert (list(page.jobs), page.next_cursor) == (wanted, None)


@on_every(ADAPTERS)
async def test_a_cursor_is_bound_to_its_filters(on: Harness) -> None:
    await fill(on)
    cursor = (await on.ledger.list(JobQuery(tenant_ids=["tenant_a"], limit=2))).next_cursor
    assert cursor is not None
    for query in (
        JobQuery(tenant_ids=["tenant_b"], cursor=cursor),
        JobQuery(cursor=cursor),
        JobQuery(tenant_ids=["tenant_a"], dlq=True, cursor=cursor),
        JobQuery(tenant_ids=["tenant_a"], request_type="SIS", cursor=cursor),
        JobQuery(tenant_ids=["tenant_a"], cursor=cursor[:-3]),
        JobQuery(tenant_ids=["tenant_a"], cursor="x"),
        JobQuery(tenant_ids=["tenant_a"], cursor="é" * 8),
    ):
        with pytest.raises(RequestError) as caught:
            await on.ledger.list(query)
        assert caught.value.code == "INVALID_CURSOR"
    again = JobQuery(tenant_ids=["tenant_a"], cursor=cursor, limit=1)
    assert len((await on.ledger.list(again)).jobs) == 1


@on_every(ADAPTERS)
async def test_the_dead_letter_view_lets_go_of_what_was_dealt_with(on: Harness) -> None:
    jobs = [job for job in await fill(on) if job.in_dlq]
    assert await on.ledger.count(JobQuery(dlq=True)) == len(jobs)
    await on.apply(jobs[0], Dismissed())
    await on.apply(jobs[1], Redriven("another"))
    assert await walk(on, JobQuery(dlq=True)) == jobs[:1:-1]
    assert await on.ledger.count(JobQuery(dlq=True)) == len(jobs) - 2
    states = [JobState.FAILED_FINAL]
    assert len(await walk(on, JobQuery(states=states))) == len(jobs)
