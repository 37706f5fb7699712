"""Invariant 7: every failure is detectable by a metric. One test for each way to fail."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.core.decide import decide
from lucius.core.errors import BusUnavailableError, LedgerUnavailableError
from lucius.core.inputs import Dismissed, EffectSettled, PauseRequested
from lucius.platform import FatalError, RetryableError, Task
from lucius.ports.bus import Message
from lucius.ports.ledger import DueJob
from tests.conformance.jobs import at, claim_of, failure_of, make
from tests.faults.network import Network, kinds
from tests.observability.world import Scripted, Watched, watched

DAY = 86_400.0


async def failing(task: Task) -> None:
    raise FatalError("the document is empty", code="EMPTY")


async def failing_once(task: Task) -> None:
    if task.attempt_no == 1:
        raise RetryableError("try again")


@watched
async def test_a_job_that_fails(world: Watched) -> None:
    await world.serve(Scripted(failing))
    job_id = await world.submit()
    assert await world.finished(job_id) == "FAILED_FINAL"
    failed = {"request_type": "OCR", "state": "FAILED_FINAL"}
    assert await world.value("lucius_jobs_ended_total", **failed) == 1
    reason = {"service": "ocr", "reason": "result_failed"}
    assert await world.value("lucius_attempts_failed_total", **reason) == 1


@watched
async def test_the_dead_letter_view_grows_and_shrinks(world: Watched) -> None:
    await world.serve(Scripted(failing))
    assert await world.value("lucius_dlq_jobs") == 0
    job_id = await world.submit()
    await world.finished(job_id)
    assert await world.value("lucius_dlq_jobs") == 1
    await world.engine.apply(job_id, Dismissed())
    assert await world.value("lucius_dlq_jobs") == 0


@watched
async def test_the_dead_letter_view_is_counted_anew_for_what_other_processes_did(
    world: Watched,
) -> None:
    await world.serve(Scripted(failing))
    await world.finished(await world.submit())
    world.metrics._dlq = 7
    await asyncio.sleep(3600)
    assert await world.value("lucius_dlq_jobs") == 1


@watched
async def test_the_dead_letter_view_is_counted_however_large_it_is(world: Watched) -> None:
    failed = make("failed", types=("SIS",), released=True)
    failed_job = decide(failed.job, failure_of(failed.job), at(1)).job
    for n in range(1_200):
        plan = replace(failed_job.plan, job_id=f"job-{n}")
        await world.ledger.create(claim_of(n), replace(failed_job, plan=plan), ())
    assert await world.value("lucius_dlq_jobs") == 1_200


@watched
async def test_a_step_that_is_tried_again(world: Watched) -> None:
    await world.serve(Scripted(failing_once))
    assert await world.finished(await world.submit()) == "SUCCEEDED"
    assert await world.value("lucius_retries_total", track="execution") == 1


@watched
async def test_a_missing_ack(world: Watched) -> None:
    world.bus.lose = kinds("DIRECTIVE")
    assert await world.finished(await world.submit()) == "FAILED_FINAL"
    reason = {"service": "ocr", "reason": "ack_timeout"}
    assert await world.value("lucius_attempts_failed_total", **reason) == 3
    assert await world.value("lucius_retries_total", track="ack") == 2
    move = "step AWAITING_ACK->FAILED_RETRY"
    assert await world.value("lucius_sweeper_actions_total", move=move) == 2


@watched
async def test_a_service_that_falls_silent(world: Watched) -> None:
    puppet = await world.puppet()
    await world.submit()
    await puppet.ack(await puppet.take())
    await asyncio.sleep(16 * 60)
    reason = {"service": "ocr", "reason": "lease_expired"}
    assert await world.value("lucius_attempts_failed_total", **reason) == 1
    assert await world.value("lucius_retries_total", track="execution") == 1


@watched
async def test_a_refused_publish(world: Watched) -> None:
    world.bus.refuse = kinds("DIRECTIVE")
    assert await world.finished(await world.submit()) == "FAILED_FINAL"
    reason = {"service": "ocr", "reason": "publish_refused"}
    assert await world.value("lucius_attempts_failed_total", **reason) == 3
    assert await world.value("lucius_retries_total", track="publish") == 2


@watched
async def test_replies_that_are_not_applied_beyond_those_that_are_recorded(
    world: Watched,
) -> None:
    puppet = await world.puppet()
    await world.submit()
    directive = await puppet.take()
    await puppet.ack(directive)
    for number in range(30):
        await puppet.say({**directive, "lease_id": f"other-{number}"}, "RESULT", status="SUCCEEDED")
    await puppet.say({**directive, "lease_id": "other"}, "HEARTBEAT")
    for _ in range(2):
        await puppet.succeed(directive)
    await puppet.say({**directive, "stepId": "nope"}, "ACK")
    applied = {"kind": "ack", "outcome": "applied"}
    assert await world.value("lucius_replies_total", **applied) == 1
    for kind, outcome, number in (
        ("result", "stale", 30),
        ("heartbeat", "stale", 1),
        ("result", "duplicate", 1),
        ("ack", "rejected", 1),
    ):
        assert await world.value("lucius_replies_total", kind=kind, outcome=outcome) == number


@watched
async def test_replies_that_are_set_aside(world: Watched) -> None:
    puppet = await world.puppet()
    await world.submit()
    directive = await puppet.take()
    await puppet.say({**directive, "jobId": "nope"}, "ACK")
    await puppet.say(directive, "RESULT", status="WHO KNOWS")
    aside = {"incident": "reply_set_aside"}
    assert await world.value("lucius_incidents_total", **aside, cause="UNKNOWN_JOB") == 1
    assert await world.value("lucius_incidents_total", **aside, cause="INVALID_CALLBACK") == 1


@watched
async def test_an_sla_that_is_broken(world: Watched) -> None:
    async def for_long(task: Task) -> None:
        world.loop.stand_still(1.5 * DAY)
        await asyncio.sleep(60)

    await world.serve(Scripted(for_long))
    await world.finished(await world.submit())
    assert await world.value("lucius_escalations_total", sla="job_sla") == 1


@watched
async def test_a_pause_that_is_forgotten(world: Watched) -> None:
    world.outbox.windows.close()
    await world.engine.apply(await world.submit(), PauseRequested())
    world.loop.stand_still(8 * DAY)
    await asyncio.sleep(60)
    assert await world.value("lucius_escalations_total", sla="pause_sla") == 1


@watched
async def test_a_webhook_that_is_given_up(world: Watched) -> None:
    await world.serve(Scripted())
    job_id = await world.submit(callback_urls=["https://example.com/hook"])
    await world.finished(job_id)
    job = await world.engine.job(job_id)
    for owed in job.owed if job else ():
        await world.engine.apply(job_id, EffectSettled(owed.owed_id, performed=False, final=True))
    given_up = {"effect": "notify_client", "performed": "false"}
    assert await world.value("lucius_effects_settled_total", **given_up) == 1


@watched
async def test_a_bus_that_is_down(world: Watched) -> None:
    def down(message: Message) -> bool:
        raise BusUnavailableError("no route to the broker")

    world.bus.refuse = down
    await world.submit()
    await asyncio.sleep(10)
    outage = {"incident": "outage", "cause": "bus"}
    assert await world.value("lucius_incidents_total", **outage) == 1
    assert world.dispatcher.outage.on
    world.bus.refuse = lambda message: False
    await asyncio.sleep(10)
    assert not world.dispatcher.outage.on


@watched
async def test_replies_that_the_bus_does_not_deliver(world: Watched) -> None:
    async def down(*asked: object) -> Any:
        raise BusUnavailableError("no route to the broker")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "receive", down)
        await asyncio.sleep(60)
    assert world.outbox.replies.outage.on
    outage = {"incident": "outage", "cause": "bus"}
    assert await world.value("lucius_incidents_total", **outage) == 1


@watched
async def test_a_ledger_that_is_down(world: Watched) -> None:
    async def down(*asked: object) -> Sequence[DueJob]:
        raise LedgerUnavailableError("the disk is gone")

    await world.submit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryLedger, "due", down)
        await asyncio.sleep(60)
        outage = {"incident": "outage", "cause": "ledger"}
        assert await world.value("lucius_incidents_total", **outage) == 1


@watched
async def test_jobs_that_are_due_and_do_not_move(world: Watched) -> None:
    async def defective(*asked: object) -> Any:
        raise ValueError("a defect")

    await world.submit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryLedger, "save", defective)
        await asyncio.sleep(600)
        assert await world.value("lucius_overdue_seconds") > 300
    assert await world.value("lucius_incidents_total", incident="stuck", cause="due") > 10
    failed = {"incident": "task_failed", "cause": "tick"}
    assert await world.value("lucius_incidents_total", **failed) > 10


@watched
async def test_a_task_of_the_engine_that_breaks(world: Watched) -> None:
    async def breaks() -> None:
        raise KeyError("a defect")

    world.loop.set_exception_handler(lambda loop, context: None)
    world.outbox.tasks.spawn(breaks())
    await asyncio.sleep(1)
    failed = {"incident": "task_failed", "cause": "engine"}
    assert await world.value("lucius_incidents_total", **failed) == 1


@watched
async def test_leases_given_back_count_as_retries_once_they_use_up_attempts(world: Watched) -> None:
    puppet = await world.puppet()
    await world.submit()
    for times in range(1, 4):
        directive = await puppet.take()
        await puppet.ack(directive)
        await puppet.say(directive, "RELEASE")
        returned = {"service": "ocr", "reason": "returned"}
        assert await world.value("lucius_attempts_failed_total", **returned) == times
    assert await world.value("lucius_retries_total", track="execution") == 1


@watched
async def test_a_process_that_stands_still(world: Watched) -> None:
    await asyncio.sleep(1)
    world.loop.stand_still(8)
    await asyncio.sleep(1)
    stalled = {"incident": "stalled", "cause": "process"}
    assert await world.value("lucius_incidents_total", **stalled) == 1
