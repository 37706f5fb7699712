"""Faults of services: nobody is there, or they are busy or held back."""

import asyncio

from tests.insight.injecting import fault
from tests.insight.ward import Ward


@fault("NO_WORKER_EVER")
async def nobody_was_ever_there(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(5)
    return job_id


@fault("NO_WORKER_EVER")
async def nobody_was_ever_there_and_it_waits_for_its_second_attempt(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(45)
    return job_id


@fault("NO_WORKER_EVER")
async def nobody_was_ever_there_and_it_failed(ward: Ward) -> str:
    job_id = await ward.submit()
    await ward.ended(job_id)
    return job_id


def _refuses(*given: object) -> str:
    return "the reply carries no callback token"


@fault("BAD_TOKEN", "ocr", guard=_refuses)
async def its_replies_are_refused(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(5)
    return job_id


@fault("BAD_TOKEN", "ocr", guard=_refuses)
async def its_replies_are_refused_and_it_waits_for_its_second_attempt(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(45)
    return job_id


@fault("BAD_TOKEN", "ocr", guard=_refuses)
async def its_replies_were_refused_and_it_failed(ward: Ward) -> str:
    job_id = await ward.submit()
    await ward.ended(job_id)
    return job_id


async def _worked_once(ward: Ward) -> None:
    await ward.ended(await ward.submit())
    await ward.stop("ocr")
    await asyncio.sleep(600)


@fault("WORKERS_SILENT", "ocr")
async def workers_went_away(ward: Ward) -> str:
    await _worked_once(ward)
    job_id = await ward.submit()
    await asyncio.sleep(15)
    return job_id


@fault("WORKERS_SILENT", "ocr")
async def workers_went_away_and_it_waits_for_its_second_attempt(ward: Ward) -> str:
    await _worked_once(ward)
    job_id = await ward.submit()
    await asyncio.sleep(45)
    return job_id


@fault("WORKERS_SILENT", "ocr")
async def workers_went_away_and_it_waits_behind_others(ward: Ward) -> str:
    await _worked_once(ward)
    for _ in range(30):
        job_id = await ward.submit()
    await asyncio.sleep(15)
    return job_id


@fault("WORKERS_SILENT", "ocr")
async def workers_went_away_and_it_failed(ward: Ward) -> str:
    await _worked_once(ward)
    job_id = await ward.submit()
    await ward.ended(job_id)
    return job_id


@fault("NOT_SUBSCRIBED", subscribed=False)
async def nobody_is_subscribed(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(5)
    return job_id


@fault("NOT_SUBSCRIBED", subscribed=False)
async def nobody_is_subscribed_and_it_failed(ward: Ward) -> str:
    job_id = await ward.submit()
    await ward.ended(job_id)
    return job_id


@fault("BUSY", slots=1)
async def it_waits_behind_others(ward: Ward) -> str:
    await ward.start("ocr", 60)
    for _ in range(40):
        job_id = await ward.submit()
    await asyncio.sleep(400)
    return job_id


@fault("HELD_BY_LIMIT", "ocr")
async def nobody_serves_its_tenant(ward: Ward) -> str:
    ward.bus.loses = "tenant_b"
    for _ in range(6):
        job_id = await ward.submit(tenant_id="tenant_b")
    for _ in range(12):
        await ward.ended(await ward.submit())
        await asyncio.sleep(12)
    for _ in range(6):
        job_id = await ward.submit(tenant_id="tenant_b")
    await ward.ended(await ward.submit())
    return job_id


@fault("SERVICE_PAUSED", "ocr")
async def its_service_is_paused(ward: Ward) -> str:
    await ward.activity.paused.pause("ocr", "anna", "its disk is full")
    job_id = await ward.submit()
    await asyncio.sleep(60)
    return job_id


@fault("SERVICE_PAUSED")
async def its_service_is_paused_with_its_directive_out(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(1)
    await ward.activity.paused.pause("ocr", "anna", None)
    await asyncio.sleep(3600)
    return job_id
