"""Injected faults, each with the cause that must be named; the last of them are two at once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from lucius.core.inputs import (
    AckReceived,
    CancelRequested,
    PauseRequested,
)
from lucius.core.plan import Sla
from tests.insight.ward import FATAL, LATER, PROTOCOLS, Ward
from tests.virtual import VirtualLoop

Inject = Callable[[Ward], Awaitable[str]]
"""Brings the fault about; answers the job to ask about."""


@dataclass(frozen=True)
class InjectedFault:
    name: str
    cause: str
    inject: Inject
    running: tuple[str, ...] = ()
    ward: dict[str, Any] | None = None

    def ward_on(self, loop: VirtualLoop) -> Ward:
        return Ward(loop, **(self.ward or {}))


FAULTS: list[InjectedFault] = []


def fault(cause: str, *running: str, **ward: Any) -> Callable[[Inject], Inject]:
    def register(inject: Inject) -> Inject:
        name = inject.__name__.replace("_", " ")
        FAULTS.append(InjectedFault(name, cause, inject, running, ward))
        return inject

    return register


# -- nobody is there -------------------------------------------------------------------------


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


@fault("NO_WORKER_EVER")
async def nobody_was_ever_there_and_it_waits_behind_others(ward: Ward) -> str:
    for _ in range(30):
        job_id = await ward.submit()
    await asyncio.sleep(5)
    return job_id


@fault("NO_WORKER_EVER", "ocr")
async def nobody_is_there_for_the_second_step(ward: Ward) -> str:
    job_id = await ward.submit("ALL")
    await asyncio.sleep(10)
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


# -- busy, or held back ----------------------------------------------------------------------


@fault("BUSY", slots=1)
async def it_waits_behind_others(ward: Ward) -> str:
    await ward.start("ocr", 60)
    for _ in range(40):
        job_id = await ward.submit()
    await asyncio.sleep(200)
    return job_id


@fault("BUSY", slots=1)
async def it_is_sent_and_every_slot_is_taken(ward: Ward) -> str:
    await ward.start("ocr", 300)
    await ward.submit()
    await asyncio.sleep(5)
    job_id = await ward.submit()
    await asyncio.sleep(20)
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
    await ward.heard.paused.pause("ocr", "anna", "its disk is full")
    job_id = await ward.submit()
    await asyncio.sleep(60)
    return job_id


@fault("SERVICE_PAUSED")
async def its_service_is_paused_with_its_directive_out(ward: Ward) -> str:
    job_id = await ward.submit()
    await asyncio.sleep(1)
    await ward.heard.paused.pause("ocr", "anna", None)
    await asyncio.sleep(3600)
    return job_id


# -- the job itself --------------------------------------------------------------------------


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


@fault("WAITS_FOR_RETRY", "ocr")
async def it_failed_and_is_tried_again(ward: Ward) -> str:
    await ward.ended(await ward.submit())
    ward.services["ocr"].fails["tenant_b"] = LATER
    job_id = await ward.submit(tenant_id="tenant_b")
    await asyncio.sleep(5)
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
    for _ in range(5):
        job_id = await ward.submit()
        await ward.ended(job_id)
    return job_id


@fault("SERVICE_FAILS_ALIKE", "ocr")
async def its_service_fails_every_job_and_they_are_tried_again(ward: Ward) -> str:
    ward.services["ocr"].fails["*"] = LATER
    for _ in range(5):
        job_id = await ward.submit()
    await asyncio.sleep(10)
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


# -- what does not answer --------------------------------------------------------------------


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


# -- two at once -----------------------------------------------------------------------------


@fault("BUS_AWAY")
async def the_broker_is_away_and_nobody_is_there(ward: Ward) -> str:
    ward.bus.away = True
    return await nobody_was_ever_there(ward)


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


@fault("JOB_FAILS_ALONE", "ocr")
async def it_alone_fails_and_another_service_was_never_there(ward: Ward) -> str:
    await ward.submit("ALL")
    return await it_alone_fails(ward)


@fault("WORKERS_SILENT", "ocr")
async def workers_went_away_and_another_service_is_paused(ward: Ward) -> str:
    await ward.heard.paused.pause("embedding", "anna", None)
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


@fault("SERVICE_FAILS_ALIKE", "ocr")
async def its_service_fails_every_job_and_another_is_busy(ward: Ward) -> str:
    await ward.start("embedding", 600)
    for _ in range(10):
        await ward.submit("ALL")
    await asyncio.sleep(30)
    return await its_service_fails_every_job(ward)
