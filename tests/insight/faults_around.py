"""Faults around the jobs: what does not answer, and two faults at once."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from lucius.core.inputs import PauseRequested
from tests.insight.faults_of_jobs import its_service_fails_every_job
from tests.insight.faults_of_services import (
    its_service_is_paused,
    workers_went_away,
)
from tests.insight.injecting import fault
from tests.insight.ward import PROTOCOLS, Ward


@fault("BUS_AWAY", "ocr")
async def the_broker_is_away(ward: Ward) -> str:
    ward.bus.away = True
    job_id = await ward.submit()
    await asyncio.sleep(60)
    return job_id


@fault("PUBLISH_REFUSED", "ocr")
async def the_broker_refuses(ward: Ward) -> str:
    ward.bus.refuses = True
    job_id = await ward.submit()
    await asyncio.sleep(5)
    return job_id


@fault("LEDGER_AWAY", "ocr")
async def the_ledger_takes_no_writes(ward: Ward) -> str:
    job_id = await ward.submit()
    ward.ledger.away = True
    await asyncio.sleep(60)
    return job_id


@fault("CLOCK_OFF")
async def the_clock_is_off_by_the_storage(ward: Ward) -> str:
    ward.troubles["clock"] = "it is 40 s ahead of the storage service"
    return await ward.submit()


@fault("CLOCK_OFF")
async def the_clock_was_set_back(ward: Ward) -> str:
    await asyncio.sleep(7200)
    job_id = await ward.submit()
    ward.clock_back = timedelta(hours=1)
    return job_id


@fault("ENGINE_DOWN", "ocr")
async def a_part_of_the_engine_is_down(ward: Ward) -> str:
    ward.troubles["reconciler"] = "reconciler: ZeroDivisionError()"
    return await ward.submit()


@fault("NOT_TICKED")
async def nobody_moves_what_is_due(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(1)
    for task in ward.tasks:
        task.cancel()
    await asyncio.sleep(300)
    return job_id


@fault("PROTOCOL_GONE")
async def its_protocol_is_gone(ward: Ward) -> str:
    job_id = await ward.submit()
    others = {name: each for name, each in PROTOCOLS.items() if name == "none"}
    ward.config.now = replace(ward.config.now, protocols=others)
    await asyncio.sleep(5)
    return job_id


@fault("PROTOCOL_GONE", subscribed=False)
async def its_protocol_is_gone_and_nobody_is_subscribed(ward: Ward) -> str:
    """As after a restart: subscriptions are made for the protocols in force."""
    return await its_protocol_is_gone(ward)


@fault("PROTOCOL_GONE", subscribed=False)
async def its_protocol_is_gone_and_it_waits_for_its_second_attempt(ward: Ward) -> str:
    job_id = await its_protocol_is_gone(ward)
    await asyncio.sleep(60)
    return job_id


@fault("PROTOCOL_GONE", subscribed=False)
async def its_protocol_is_gone_and_it_failed(ward: Ward) -> str:
    job_id = await its_protocol_is_gone(ward)
    await ward.ended(job_id)
    return job_id


@fault("JOB_PAUSED")
async def it_is_paused_and_nobody_is_there(ward: Ward) -> str:
    job_id = await ward.submit("ALL")
    await ward.apply(job_id, PauseRequested())
    await asyncio.sleep(120)
    return job_id


@fault("SERVICE_PAUSED", "ocr")
async def its_service_is_paused_and_fails_every_job(ward: Ward) -> str:
    await its_service_fails_every_job(ward)
    return await its_service_is_paused(ward)


@fault("WORKERS_SILENT", "ocr")
async def workers_went_away_and_another_service_is_paused(ward: Ward) -> str:
    await ward.activity.paused.pause("embedding", "anna", None)
    return await workers_went_away(ward)


@fault("NO_WORKER_EVER", "ocr")
async def one_of_its_stage_is_done_and_nobody_is_there_for_the_other(ward: Ward) -> str:
    job_id = await ward.submit("STAGE")
    await asyncio.sleep(20)
    return job_id


@fault("LEDGER_AWAY", "ocr")
async def the_ledger_and_the_broker_are_away(ward: Ward) -> str:
    job_id = await ward.submit()
    ward.ledger.away = ward.bus.away = True
    await asyncio.sleep(60)
    return job_id
