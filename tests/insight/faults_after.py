"""Faults as whoever is paged finds them: half mended, or over. Written to prove the rules wrong."""

import asyncio
from datetime import timedelta

from lucius.core.inputs import (
    AckReceived,
    CancelRequested,
    EffectSettled,
    ResendRequested,
)
from lucius.platform import FatalError, RetryableError
from lucius.ports.workspace import Unrestored
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


@fault("WEBHOOK_FAILS", "ocr")
async def its_client_could_not_be_told(ward: Ward) -> str:
    job_id = await ward.submit(callback_urls=["https://hooks.example/h"])
    await ward.ended(job_id)
    await ward.apply(job_id, EffectSettled("notify-0", performed=False, reason="it answered 503"))
    return job_id


@fault("WEBHOOK_FAILS", "ocr")
async def its_client_could_not_be_told_and_its_webhook_is_given_up(ward: Ward) -> str:
    job_id = await its_client_could_not_be_told(ward)
    refused = EffectSettled("notify-0", performed=False, final=True, reason="it answers 410")
    await ward.apply(job_id, refused)
    return job_id


@fault("SUCCEEDED", "ocr")
async def its_webhook_was_given_up_and_is_being_sent_again(ward: Ward) -> str:
    job_id = await its_client_could_not_be_told_and_its_webhook_is_given_up(ward)
    await ward.apply(job_id, ResendRequested("anna"))
    return job_id


@fault("SERVICES_DOWN")
async def the_process_of_its_service_has_died(ward: Ward) -> str:
    job_id = await ward.submit()
    ward.services_down["ocr"] = "the process of the services has died (killed by SIGKILL)"
    return job_id


@fault("DISK_FULL", "ocr")
async def there_is_no_room_for_its_output(ward: Ward) -> str:
    full = RetryableError("No space left on device", code="DISK_FULL")
    ward.services["ocr"].fails["tenant_b"] = full
    job_id = await ward.submit(tenant_id="tenant_b")
    await asyncio.sleep(5)
    return job_id


@fault("OUTPUT_NOT_WRITABLE", "ocr")
async def its_output_cannot_be_written(ward: Ward) -> str:
    closed = FatalError("file:///out: Permission denied", code="OUTPUT_NOT_WRITABLE")
    ward.services["ocr"].fails["*"] = closed
    for number in range(6):
        job_id = await ward.submit(tenant_id=f"tenant_{number % 2}")
        await ward.ended(job_id)
    return job_id


@fault("WORKER_QUIET")
async def its_worker_was_killed_with_work_in_hand_and_used_to_pull(ward: Ward) -> str:
    """Half of its lease is seven minutes; a worker with a free slot pulls every half a minute."""
    ward.insight.services.pulled("ocr", "w1", 4, "1")
    job_id = await ward.submit()
    await asyncio.sleep(1)
    run = (await ward.job(job_id)).steps[0].executions[-1]
    await ward.apply(job_id, AckReceived("ocr", run.attempt_no, run.exec_id, "w1", None, 4, "1"))
    await asyncio.sleep(70)
    return job_id


@fault("WORKER_QUIET", "ocr", slots=1)
async def its_step_takes_much_longer_than_steps_of_its_service_do(ward: Ward) -> str:
    for _ in range(6):
        await ward.ended(await ward.submit())
    ward.services["ocr"].seconds = 600
    job_id = await ward.submit()
    await asyncio.sleep(40)
    return job_id


@fault("WORKERS_REFUSED")
async def the_key_of_its_worker_was_revoked(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(5)
    ward.activity.refusals.pull_refused("ocr", 401, "0123456789ab")
    return job_id


@fault("WORKERS_MISNAMED")
async def its_worker_pulls_in_another_name(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(5)
    ward.activity.refusals.misnamed("orc")
    return job_id


@fault("CLOCK_OFF")
async def its_clock_is_behind_what_is_stored(ward: Ward) -> str:
    job_id = await ward.submit()
    ward.clock_back = timedelta(hours=1)
    return job_id
