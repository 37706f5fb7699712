"""Faults as whoever is paged finds them: half mended, or over. Written to prove the rules wrong."""

import asyncio

from lucius.core.inputs import AckReceived, CancelRequested, PauseRequested
from lucius.platform import FatalError
from lucius.ports.workspace import Unrestored
from tests.insight.faults_of_jobs import its_service_fails_every_job
from tests.insight.faults_of_services import workers_went_away_and_it_failed
from tests.insight.injecting import fault
from tests.insight.ward import FATAL, LATER, Ward


@fault("WORKERS_SILENT")
async def a_worker_was_killed_with_work_in_hand_and_free_slots(ward: Ward) -> str:
    """It said with its ACK that it takes four at once; nobody has taken the second."""
    first = await ward.submit()
    await asyncio.sleep(1)
    run = (await ward.job(first)).steps[0].executions[-1]
    await ward.apply(first, AckReceived("ocr", run.attempt_no, run.exec_id, "w1", None, 4, "1"))
    job_id = await ward.submit()
    await asyncio.sleep(20)
    return job_id


@fault("WORKERS_SILENT")
async def a_worker_was_killed_with_all_its_slots_taken(ward: Ward) -> str:
    """Its lease has not ended, and so its step counts as at work: it is busy to whoever counts only that."""
    first = await ward.submit()
    await asyncio.sleep(1)
    run = (await ward.job(first)).steps[0].executions[-1]
    await ward.apply(first, AckReceived("ocr", run.attempt_no, run.exec_id, "w1", None, 1, "1"))
    await asyncio.sleep(600)
    job_id = await ward.submit()
    await asyncio.sleep(20)
    return job_id


@fault("BUSY", slots=1)
async def one_worker_is_busy_and_another_was_killed_long_ago(ward: Ward) -> str:
    ward.insight.services.pulled("ocr", "old", 8, "1")
    await asyncio.sleep(3600)
    await ward.start("ocr", 120)
    await ward.submit()
    await asyncio.sleep(5)
    job_id = await ward.submit()
    await asyncio.sleep(20)
    return job_id


@fault("SERVICE_FAILS_ALIKE", "ocr")
async def its_service_failed_every_job_and_works_again(ward: Ward) -> str:
    job_id = await its_service_fails_every_job(ward)
    ward.services["ocr"].fails.clear()
    for _ in range(3):
        await ward.ended(await ward.submit())
    return job_id


@fault("SERVICE_FAILS_ALIKE", "ocr")
async def its_service_fails_every_job_and_each_in_words_of_its_own(ward: Ward) -> str:
    for number, word in enumerate(("apple", "pear", "plum", "quince", "cherry", "fig")):
        ward.services["ocr"].fails["*"] = FatalError(f"the {word} cannot be read")
        job_id = await ward.submit(tenant_id=f"tenant_{number % 2}")
        await ward.ended(job_id)
    return job_id


async def _fails_in_two_ways(ward: Ward) -> str:
    """Of the first way, of which more follow than of the second."""
    ward.services["ocr"].fails["*"] = FATAL
    first = [await ward.submit(tenant_id=f"tenant_{number % 2}") for number in range(6)]
    for job_id in first:
        await ward.ended(job_id)
    ward.services["ocr"].fails["*"] = FatalError("the model is not loaded")
    for number in range(4):
        await ward.ended(await ward.submit(tenant_id=f"tenant_{number % 2}"))
    return first[0]


@fault("SERVICE_FAILS_ALIKE", "ocr")
async def its_service_failed_every_job_so_and_fails_them_otherwise_now(ward: Ward) -> str:
    return await _fails_in_two_ways(ward)


@fault("SERVICE_FAILS_ALIKE", "ocr")
async def its_service_failed_every_job_in_two_ways_and_works_again(ward: Ward) -> str:
    job_id = await _fails_in_two_ways(ward)
    ward.services["ocr"].fails.clear()
    await ward.ended(await ward.submit())
    return job_id


@fault("WORKERS_SILENT", "ocr")
async def nobody_took_it_and_the_workers_are_back(ward: Ward) -> str:
    job_id = await workers_went_away_and_it_failed(ward)
    await ward.start("ocr")
    await ward.ended(await ward.submit())
    return job_id


@fault("SERVICE_PAUSED", "ocr")
async def it_failed_and_its_service_was_paused_before_the_next_try(ward: Ward) -> str:
    await ward.ended(await ward.submit())
    ward.services["ocr"].fails["tenant_b"] = LATER
    job_id = await ward.submit(tenant_id="tenant_b")
    await asyncio.sleep(5)
    await ward.activity.paused.pause("ocr", "anna", "its model is broken")
    return job_id


@fault("JOB_FAILS_ALONE", "ocr")
async def it_alone_fails_while_others_of_its_tenant_succeed(ward: Ward) -> str:
    await ward.ended(await ward.submit(tenant_id="tenant_b"))
    ward.services["ocr"].fails["tenant_b"] = FATAL
    job_id = await ward.submit(tenant_id="tenant_b")
    await ward.ended(job_id)
    ward.services["ocr"].fails.clear()
    await ward.ended(await ward.submit(tenant_id="tenant_b"))
    return job_id


@fault("BUS_AWAY")
async def it_is_being_cancelled_and_the_broker_is_away(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(5)
    await ward.apply(job_id, CancelRequested())
    ward.bus.away = True
    await ward.submit()
    await asyncio.sleep(10)
    return job_id


@fault("AT_WORK")
async def it_is_at_work_and_the_service_of_its_next_step_is_paused(ward: Ward) -> str:
    await ward.start("ocr", 600)
    await ward.activity.paused.pause("embedding", "anna", None)
    job_id = await ward.submit("ALL")
    await asyncio.sleep(60)
    return job_id


@fault("JOB_PAUSED", "ocr")
async def it_is_paused_and_its_service_fails_every_job(ward: Ward) -> str:
    job_id = await ward.submit("ALL")
    await ward.apply(job_id, PauseRequested())
    await asyncio.sleep(10)
    await its_service_fails_every_job(ward)
    return job_id


@fault("NO_WORKER_EVER", "ocr")
async def its_first_step_fails_now_and_then_and_nobody_is_there_for_the_second(ward: Ward) -> str:
    ward.services["ocr"].fails["tenant_b"] = LATER
    await ward.submit(tenant_id="tenant_b")
    job_id = await ward.submit("ALL")
    await asyncio.sleep(10)
    return job_id


@fault("WORKER_QUIET", "ocr")
async def its_worker_hangs_and_others_go_on(ward: Ward) -> str:
    ward.bus.loses = "tenant_b"
    job_id = await ward.submit(tenant_id="tenant_b")
    await asyncio.sleep(1)
    run = (await ward.job(job_id)).steps[0].executions[-1]
    await ward.apply(job_id, AckReceived("ocr", run.attempt_no, run.exec_id, "w1"))
    await asyncio.sleep(600)
    await ward.ended(await ward.submit())
    return job_id


@fault("OUTPUT_NOT_RESTORED", "ocr")
async def its_output_was_lost_with_the_power_and_cannot_be_written_again(ward: Ward) -> str:
    job_id = await ward.submit()
    await ward.ended(job_id)
    ward.unrestored.append(Unrestored("/srv/out/a.bin", job_id, "Is a directory"))
    return job_id
