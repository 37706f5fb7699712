"""`verify` finds nothing in what the ledger wrote, and finds each kind of damage that is planted."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lucius.core.decide import decide
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.ports.ledger import Inflight
from tests.conformance.jobs import at, life_of, make
from tests.conformance.ledger_registry import ADAPTERS, BULK, Adapter, Harness
from tests.conformance.ledger_scripts import ACTIONS, WORLDS, Script, played
from tests.conformance.on_every import on_every, params

SCRIPTS = st.lists(
    st.tuples(st.integers(0, len(WORLDS) - 1), st.sampled_from(ACTIONS), st.integers(1, 2000)),
    max_size=40,
)


NEAR = [adapter for adapter in ADAPTERS if BULK in adapter.capabilities]
FAR = [adapter for adapter in ADAPTERS if BULK not in adapter.capabilities]
"""Each request of theirs takes its time, and what they share with the near ones is tried there."""
of_adapter = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors])


@pytest.mark.slow
@pytest.mark.parametrize("adapter", params(NEAR))
@given(script=SCRIPTS)
@settings(of_adapter, max_examples=60)
def test_whatever_is_decided_and_saved_verifies_clean(adapter: Adapter, script: Script) -> None:
    check(adapter, script)


@pytest.mark.parametrize("adapter", params(FAR))
@given(script=SCRIPTS)
@settings(of_adapter, max_examples=8)
def test_it_does_so_over_the_wire(adapter: Adapter, script: Script) -> None:
    check(adapter, script)


def check(adapter: Adapter, script: Script) -> None:
    async def body(on: Harness) -> None:
        jobs = [await on.create(made) for made in WORLDS]
        for number, action, seconds in script:
            jobs[number] = await played(on, jobs[number], action, seconds)
        assert await on.ledger.verify() == []
        for job in jobs:
            assert await on.ledger.load(job.job_id) == job
            events = await on.ledger.events(job.job_id, 0, 1000)
            assert [event.seq for event in events] == list(range(1, job.seq + 1))
        assert (await on.ledger.inflight()) == counted(jobs)

    adapter.run(body)


def counted(jobs: list[Job]) -> Inflight:
    inflight = Inflight(sum(not job.terminal for job in jobs))
    for job in jobs:
        if not job.terminal:
            lane = (job.plan.routing.lane, job.plan.routing.resolved_mode.value)
            inflight.lanes[lane] = inflight.lanes.get(lane, 0) + 1
            inflight.tenants[job.tenant_id] = inflight.tenants.get(job.tenant_id, 0) + 1
    return inflight


# -- planted damage --------------------------------------------------------------------------

Damage = Callable[[Harness, Job], Awaitable[None]]


def edited(change: Callable[[dict[str, Any]], None]) -> Damage:
    async def damage(on: Harness, job: Job) -> None:
        await on.tamper.edit(job.job_id, change)

    return damage


async def expect(on: Harness, job: Job, damage: Damage, *kinds: str) -> None:
    assert await on.kinds() == set()
    await damage(on, job)
    assert set(kinds) <= await on.kinds()


async def running(on: Harness, saves: int) -> Job:
    made = make(1, released=True)
    job = await on.create(made)
    for decision in life_of(made.job)[:saves]:
        job = await on.save(decision)
    return job


@on_every(ADAPTERS)
async def test_two_committed_executions_are_found(on: Harness) -> None:
    job = await running(on, 3)

    def change(doc: dict[str, Any]) -> None:
        runs = doc["steps"][0]["runs"]
        runs.append({**runs[0], "id": "another", "state": "COMMITTED", "attempt": 2})

    await expect(on, job, edited(change), "two_committed")


@on_every(ADAPTERS)
async def test_phase_drift_is_found(on: Harness) -> None:
    job = await running(on, 6)
    change = edited(lambda doc: doc["steps"][1]["runs"][0].update(state="IN_PROGRESS"))
    await expect(on, job, change, "phase_drift")


@on_every(ADAPTERS)
async def test_a_job_that_ended_without_its_executions_saying_so_is_found(on: Harness) -> None:
    job = await on.apply(await on.create(make(1)), CancelRequested())
    await expect(on, job, edited(lambda doc: doc["steps"][0].pop("runs")), "phase_drift")


@on_every(ADAPTERS)
async def test_a_missing_due_at_is_found(on: Harness) -> None:
    job = await running(on, 2)
    await expect(on, job, edited(lambda doc: doc.pop("due")), "missing_due_at")


@on_every(ADAPTERS)
async def test_a_debt_that_nobody_will_pay_is_found(on: Harness) -> None:
    made = make(1, callback_urls=("https://client.example/done",))
    job = await on.apply(await on.create(made), CancelRequested())
    await expect(on, job, edited(lambda doc: doc.pop("due")), "missing_due_at")


@on_every(ADAPTERS)
async def test_a_wrong_due_at_is_found(on: Harness) -> None:
    job = await running(on, 2)
    change = edited(lambda doc: doc.update(due=doc["due"] + 10**9))
    await expect(on, job, change, "wrong_due_at")


@on_every(ADAPTERS)
async def test_a_job_that_its_due_index_forgot_is_found(on: Harness) -> None:
    job = await running(on, 2)
    await on.tamper.lose_due(job.job_id)
    assert await on.kinds() & {"missing_due_at", "column_drift"}


@on_every(ADAPTERS)
async def test_more_attempts_than_allowed_are_found(on: Harness) -> None:
    job = await running(on, 1)
    change = edited(lambda doc: doc["steps"][0].update(attempt=4))
    await expect(on, job, change, "attempts_exceeded")


@on_every(ADAPTERS)
async def test_a_step_that_its_entry_contradicts_is_found(on: Harness) -> None:
    job = await running(on, 1)
    change = edited(lambda doc: doc["steps"][0]["entry"].update(state="HELD"))
    await expect(on, job, change, "entry_drift")


@on_every(ADAPTERS)
async def test_a_claim_without_its_job_is_found(on: Harness) -> None:
    job = await running(on, 6)
    await expect(on, job, lambda on, job: on.tamper.lose_job(job.job_id), "claim_without_job")


@on_every(ADAPTERS)
async def test_a_job_without_its_claim_is_found(on: Harness) -> None:
    job = await running(on, 1)
    await expect(on, job, lambda on, _: on.tamper.lose_claim(make(1).claim), "job_without_claim")


@on_every(ADAPTERS)
async def test_a_ready_entry_without_its_job_is_found(on: Harness) -> None:
    job = await running(on, 1)
    await expect(on, job, lambda on, _: on.tamper.stray_ready("nobody"), "ready_without_job")


@on_every(ADAPTERS)
async def test_a_ready_entry_of_a_step_that_is_not_ready_is_found(on: Harness) -> None:
    job = await running(on, 1)
    await expect(on, job, lambda on, job: on.tamper.stray_ready(job.job_id), "ready_without_step")


@on_every(ADAPTERS)
async def test_a_ready_step_that_is_not_queued_is_found(on: Harness) -> None:
    job = await on.create(make(1))
    await expect(on, job, lambda on, job: on.tamper.lose_ready(job.job_id), "ready_missing")


@on_every(ADAPTERS)
async def test_a_wrong_inflight_count_is_found(on: Harness) -> None:
    job = await running(on, 1)
    await expect(on, job, lambda on, job: on.tamper.miscount(job.job_id), "inflight")


@on_every(ADAPTERS)
async def test_a_gap_in_the_events_is_found(on: Harness) -> None:
    job = await running(on, 3)
    await expect(on, job, lambda on, job: on.tamper.lose_events(job.job_id), "event_gap")


@on_every(ADAPTERS)
async def test_a_drift_names_its_job(on: Harness) -> None:
    sound = await on.create(make("sound"))
    job = await running(on, 2)
    await on.tamper.edit(job.job_id, lambda doc: doc.pop("due"))
    drifts = await on.ledger.verify()
    assert {drift.subject for drift in drifts} == {job.job_id}
    assert sound.job_id not in str(drifts)
    assert decide(sound, CancelRequested(), at(1)).job.terminal
