"""Faults of one job: what was ordered, what failed, what waits."""

import asyncio
from datetime import timedelta

from lucius.core.inputs import AckReceived, CancelRequested, PauseRequested
from lucius.core.plan import Sla
from lucius.platform import FatalError, RetryableError
from tests.insight.injecting import fault
from tests.insight.ward import FATAL, LATER, Ward


@fault("JOB_PAUSED", "ocr")
async def it_is_paused(ward: Ward) -> str:
    job_id = await ward.submit("ALL")
    await ward.apply(job_id, PauseRequested())
    await asyncio.sleep(30)
    return job_id


@fault("JOB_PAUSING")
async def it_pauses_when_its_step_has_ended(ward: Ward) -> str:
    await ward.start("ocr", 60)
    job_id = await ward.submit("ALL")
    await asyncio.sleep(5)
    await ward.apply(job_id, PauseRequested())
    return job_id


@fault("JOB_CANCELLING")
async def it_is_being_cancelled(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(5)
    await ward.apply(job_id, CancelRequested())
    return job_id


@fault("CANCELLED")
async def it_was_cancelled(ward: Ward) -> str:
    job_id = await ward.submit()
    await ward.apply(job_id, CancelRequested(immediate=True))
    return job_id


@fault("SUCCEEDED", "ocr")
async def it_succeeded(ward: Ward) -> str:
    job_id = await ward.submit()
    await ward.ended(job_id)
    return job_id


@fault("AWAITS_ACK")
async def it_has_just_been_sent(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(1)
    return job_id


@fault("AT_WORK")
async def its_worker_has_worked_for_an_hour(ward: Ward) -> str:
    await ward.start("ocr", 7200)
    job_id = await ward.submit()
    await asyncio.sleep(3600)
    return job_id


async def _taken_by_hand(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(1)
    run = (await ward.job(job_id)).steps[0].executions[-1]
    await ward.apply(job_id, AckReceived("ocr", run.attempt_no, run.exec_id, "w1"))
    return job_id


@fault("WORKER_QUIET")
async def its_worker_hangs(ward: Ward) -> str:
    job_id = await _taken_by_hand(ward)
    await asyncio.sleep(600)
    return job_id


@fault("WAITS_FOR_RETRY")
async def its_worker_died_and_its_lease_is_over(ward: Ward) -> str:
    job_id = await _taken_by_hand(ward)
    await asyncio.sleep(905)
    return job_id


@fault("JOB_FAILS_ALONE", "ocr")
async def it_alone_fails(ward: Ward) -> str:
    ward.services["ocr"].fails["tenant_b"] = FATAL
    job_id = await ward.submit(tenant_id="tenant_b")
    await ward.ended(job_id)
    for _ in range(3):
        await ward.ended(await ward.submit())
    return job_id


@fault("JOB_FAILS_ALONE", "ocr")
async def it_alone_fails_by_a_defect(ward: Ward) -> str:
    ward.services["ocr"].fails["tenant_b"] = ZeroDivisionError("division by zero")
    job_id = await ward.submit(tenant_id="tenant_b")
    await ward.ended(job_id)
    await ward.ended(await ward.submit())
    return job_id


@fault("SERVICE_FAILS_ALIKE", "ocr")
async def its_service_fails_every_job(ward: Ward) -> str:
    await ward.ended(await ward.submit())
    ward.services["ocr"].fails["*"] = FATAL
    for number in range(5):
        job_id = await ward.submit(tenant_id=f"tenant_{number % 2}")
        await ward.ended(job_id)
    return job_id


@fault("SERVICE_FAILS_ALIKE", "ocr")
async def its_service_fails_every_job_and_they_are_tried_again(ward: Ward) -> str:
    ward.services["ocr"].fails["*"] = LATER
    for number in range(5):
        job_id = await ward.submit(tenant_id=f"tenant_{number % 2}")
    await asyncio.sleep(10)
    return job_id


@fault("TENANT_FAILS_ALIKE", "ocr")
async def its_tenant_sends_the_same_locked_document_six_times(ward: Ward) -> str:
    await ward.ended(await ward.submit())
    ward.services["ocr"].fails["tenant_b"] = FatalError("the PDF is locked", code="PDF_LOCKED")
    for _ in range(6):
        job_id = await ward.submit(tenant_id="tenant_b")
        await ward.ended(job_id)
    return job_id


@fault("TENANT_FAILS_ALIKE", "ocr")
async def its_tenant_sent_locked_documents_and_others_succeed_again(ward: Ward) -> str:
    job_id = await its_tenant_sends_the_same_locked_document_six_times(ward)
    await ward.ended(await ward.submit())
    return job_id


@fault("SERVICE_DEGRADED", "ocr")
async def most_attempts_of_its_service_are_told_to_wait_and_some_succeed(ward: Ward) -> str:
    for _ in range(6):
        ward.services["ocr"].fails["tenant_b"] = RetryableError("429", code="TOO_MANY_REQUESTS")
        for _ in range(3):
            job_id = await ward.submit(tenant_id="tenant_b")
        await asyncio.sleep(5)
        await ward.ended(await ward.submit())
    return job_id


@fault("ENDED_BY_SLA", sla=Sla(job=timedelta(minutes=10), fail_job=True))
async def it_took_longer_than_it_may(ward: Ward) -> str:
    await ward.start("ocr", 7200)
    job_id = await ward.submit()
    await ward.ended(job_id)
    return job_id


@fault("REDRIVEN", "ocr")
async def it_was_redriven(ward: Ward) -> str:
    ward.services["ocr"].fails["*"] = FATAL
    job_id = await ward.submit()
    await ward.ended(job_id)
    await ward.engine.redrive(job_id)
    await asyncio.sleep(5)
    return job_id


@fault("WAITS_FOR_STAGE")
async def others_of_its_stage_are_at_work(ward: Ward) -> str:
    await ward.start("ocr")
    await ward.start("embedding", 600)
    job_id = await ward.submit("STAGE")
    await asyncio.sleep(60)
    return job_id
