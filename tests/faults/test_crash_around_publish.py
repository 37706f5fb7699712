"""FM_004 and FM_005: the process dies between a save and what should have followed from it."""

import asyncio

from lucius.core.job import ExecutionState, Job, JobState, StepState
from lucius.platform.records import MemoryRecords, Records
from lucius.ports.bus import Message
from tests.faults.network import kinds
from tests.faults.sabotage import nobody_looks_again_while
from tests.faults.services import LONG, NoRecords, Scribe
from tests.faults.stage import Stage, staged

# -- FM_004 ----------------------------------------------------------------------------------


async def dies_after_publish(stage: Stage) -> str:
    """The bus has the directive, the ledger does not know; a new process takes over."""
    first = await stage.orchestrator()
    await stage.puppet()
    gate = first.points.crash("after bus.publish")
    job_id = await first.submit()
    await first.dies(gate)
    assert len(stage.bus.directives(job_id)) == 1
    await stage.orchestrator()
    return job_id


async def published_twice(stage: Stage, records: Records) -> tuple[Job, Scribe]:
    """Nobody has answered yet, so the new process publishes too; then the service comes up."""
    job_id = await dies_after_publish(stage)
    await asyncio.sleep(stage.again)
    scribe = Scribe("ocr", 2, 2)
    await stage.worker(scribe, records=records)
    return await stage.finished(job_id), scribe


@staged
async def test_fm_004_reproduce_a_service_that_does_not_deduplicate_works_twice(
    stage: Stage,
) -> None:
    _, scribe = await published_twice(stage, NoRecords())
    assert scribe.begun == [1, 1]


@staged
async def test_fm_004_prevent_the_same_attempt_lease_and_message_id_are_published_again(
    stage: Stage,
) -> None:
    job, scribe = await published_twice(stage, MemoryRecords())
    first, second = stage.bus.directives(job.job_id)
    assert first == second, "the directive is rendered from pinned fields alone"
    assert scribe.begun == [1]
    assert len(job.steps[0].executions) == 1


@staged
async def test_fm_004_recover_an_ack_proves_the_publish_that_nobody_recorded(stage: Stage) -> None:
    job_id = await dies_after_publish(stage)
    await stage.worker(Scribe())
    job = await stage.finished(job_id, within=5)
    assert job.state is JobState.SUCCEEDED
    assert len(stage.bus.directives(job_id)) == 1


# -- FM_005 ----------------------------------------------------------------------------------


def for_embedding(topic: str, messages: list[Message]) -> bool:
    return any(message.properties.get("stepId") == "embedding" for message in messages)


async def dies_after_commit(stage: Stage) -> str:
    """The RESULT of the first step is saved; the directive of the second is not yet out."""
    first = await stage.orchestrator()
    await stage.worker(Scribe())
    gate = first.points.crash("before bus.publish", for_embedding)
    job_id = await first.submit("OCR->EMBEDDING")
    await first.dies(gate)
    step = await stage.step(job_id)
    assert step.executions[-1].state is ExecutionState.COMMITTED
    await stage.orchestrator()
    await stage.worker(Scribe("embedding"))
    return job_id


@staged
async def test_fm_005_reproduce_without_the_debt_in_the_ledger_the_job_stops_there(
    stage: Stage,
) -> None:
    with nobody_looks_again_while(StepState.DISPATCHING):
        job_id = await dies_after_commit(stage)
        await asyncio.sleep(LONG)
    ocr, embedding = (await stage.job(job_id)).steps
    assert ocr.executions[-1].state is ExecutionState.COMMITTED
    assert embedding.state is StepState.DISPATCHING


@staged
async def test_fm_005_prevent_the_next_directive_is_found_due_and_published(stage: Stage) -> None:
    job_id = await dies_after_commit(stage)
    job = await stage.until(
        job_id, lambda job: job.steps[1].state is not StepState.DISPATCHING, stage.again
    )
    assert job.steps[0].executions[-1].state is ExecutionState.DONE
    wanted = [message.properties["stepId"] for message in stage.bus.directives(job_id)]
    assert wanted == ["ocr", "embedding"], "what was committed is not asked for again"


@staged
async def test_fm_005_recover_both_executions_are_done_and_each_effect_is_applied_once(
    stage: Stage,
) -> None:
    job = await stage.finished(await dies_after_commit(stage))
    assert job.state is JobState.SUCCEEDED
    assert [s.executions[-1].state for s in job.steps] == [ExecutionState.DONE] * 2
    assert stage.effects(job, "ocr") == stage.effects(job, "embedding") == [b"by attempt 1"]
    results = [m for _, m in stage.bus.taken if kinds("RESULT")(m)]
    assert len(results) == 2
