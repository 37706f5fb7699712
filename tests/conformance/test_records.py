"""What every store of begun and done work must do: one taker wins, the dead are followed, results stay."""

import asyncio

from lucius.platform.messages import Directive, parse_directive
from lucius.platform.records import MINE, OTHERS, Begun
from tests.conformance.on_every import on_every
from tests.conformance.record_registry import ADAPTERS, SHARED, Process

on_every_store = on_every(ADAPTERS)
where_processes_share_it = on_every(ADAPTERS, SHARED)
RESULT = {"status": "SUCCEEDED", "output_ref": {"uri": "mem://x/Grüße"}}


def work(process: Process, attempt_no: int = 1) -> Directive:
    return parse_directive(
        {
            "jobId": "job_1",
            "stepId": "ocr",
            "tenant_id": "tenant_a",
            "step_type": "OCR",
            "attempt_no": attempt_no,
            "lease_id": f"lease_{attempt_no}",
            "workspace_ref": process.home,
            "lane": 4,
            "lease_seconds": 60.0,
        }
    )


@on_every_store
async def test_work_is_taken_once(p: Process) -> None:
    assert await p.records.begin(work(p), "a") == MINE
    assert await p.records.begin(work(p), "b") == OTHERS
    assert await p.records.begin(work(p, 2), "b") == MINE, "another attempt is other work"


@on_every_store
async def test_of_many_takers_one_wins(p: Process) -> None:
    takers = (p.records.begin(work(p), f"owner {n}") for n in range(8))
    assert (await asyncio.gather(*takers)).count(MINE) == 1


@on_every_store
async def test_finished_work_gives_its_result(p: Process) -> None:
    await p.records.begin(work(p), "a")
    await p.records.finish(work(p), RESULT)
    assert await p.records.begin(work(p), "b") == Begun(False, RESULT)
    await p.advance(61)
    assert await p.records.begin(work(p), "b") == Begun(False, RESULT), "done is done"


@on_every_store
async def test_a_large_result_is_kept_whole(p: Process) -> None:
    large = {"status": "FAILED_FINAL", "error": {"code": "A", "message": "ü" * 40_000}}
    await p.records.begin(work(p), "a")
    await p.records.finish(work(p), large)
    assert await p.records.begin(work(p), "b") == Begun(False, large)


@on_every_store
async def test_work_of_an_owner_whose_lease_ran_out_is_taken_over_by_one(p: Process) -> None:
    await p.records.begin(work(p), "a")
    await p.advance(61)
    takers = (p.records.begin(work(p), name) for name in "bcd")
    assert (await asyncio.gather(*takers)).count(MINE) == 1


@on_every_store
async def test_an_owner_that_renews_keeps_its_work(p: Process) -> None:
    await p.records.begin(work(p), "a")
    for _ in range(3):
        await p.advance(40)
        await p.records.renew(work(p), "a")
    assert await p.records.begin(work(p), "b") == OTHERS


@on_every_store
async def test_work_that_was_given_back_can_be_taken(p: Process) -> None:
    await p.records.begin(work(p), "a")
    await p.records.forget(work(p), "a")
    assert await p.records.begin(work(p), "b") == MINE


@where_processes_share_it
async def test_another_process_knows_what_is_begun_and_done(p: Process) -> None:
    await p.records.begin(work(p), "a")
    assert await p.another().begin(work(p), "b") == OTHERS
    await p.records.finish(work(p), RESULT)
    assert await p.another().begin(work(p), "b") == Begun(False, RESULT)


@where_processes_share_it
async def test_a_restarted_worker_takes_up_its_predecessors_work(p: Process) -> None:
    await p.records.begin(work(p), "worker-0")
    restarted = p.another()
    assert await restarted.begin(work(p), "worker-1") == OTHERS
    assert await restarted.begin(work(p), "worker-0") == MINE
    assert await restarted.begin(work(p), "worker-0") == OTHERS, "it is running here"


@where_processes_share_it
async def test_who_was_replaced_cannot_take_the_work_back(p: Process) -> None:
    await p.records.begin(work(p), "a")
    await p.advance(61)
    second = p.another()
    assert await second.begin(work(p), "b") == MINE
    await p.records.renew(work(p), "a")
    await p.records.forget(work(p), "a")
    assert await p.another().begin(work(p), "c") == OTHERS, "b is at work"
