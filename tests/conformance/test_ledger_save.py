"""Saving jobs: a save lands only on the version it was made from, and its events with it."""

import asyncio
from dataclasses import replace

from lucius.core.decide import decide
from lucius.core.inputs import CancelRequested, HeartbeatReceived, Input, PauseRequested
from lucius.core.job import JobState
from tests.conformance.jobs import ack_of, at, life_of, make, release_of
from tests.conformance.ledger_registry import ADAPTERS, DURABLE, Harness
from tests.conformance.on_every import on_every


@on_every(ADAPTERS)
async def test_every_version_of_a_life_is_loaded_as_it_was_saved(on: Harness) -> None:
    made = make(1, released=True)
    await on.create(made)
    for decision in life_of(made.job):
        await on.save(decision)
        assert await on.ledger.load(made.job.job_id) == decision.job
    assert decision.job.state is JobState.SUCCEEDED
    loaded = await on.ledger.load(made.job.job_id)
    assert loaded is not None
    assert loaded.final_output == decision.job.final_output
    assert [s.result_ref for s in loaded.steps] == [s.result_ref for s in decision.job.steps]


@on_every(ADAPTERS)
async def test_of_many_saves_from_one_version_one_lands(on: Harness) -> None:
    job = await on.create(make(1))
    inputs: list[Input] = [CancelRequested(), PauseRequested(), release_of(job)]
    rivals = [decide(job, received, at(n)) for n, received in enumerate(inputs * 10, 1)]
    landed = await asyncio.gather(
        *(on.ledger.save(rival.job, job.version, rival.events) for rival in rivals)
    )
    assert landed.count(True) == 1
    winner = rivals[landed.index(True)]
    assert await on.ledger.load(job.job_id) == winner.job
    events = await on.ledger.events(job.job_id, job.seq, 100)
    assert tuple(events) == winner.events


@on_every(ADAPTERS)
async def test_a_save_from_an_old_version_writes_nothing(on: Harness) -> None:
    job = await on.create(make(1))
    released = await on.apply(job, release_of(job))
    late = decide(job, CancelRequested(), at(9))
    assert not await on.ledger.save(late.job, job.version, late.events)
    assert await on.ledger.load(job.job_id) == released
    assert len(await on.ledger.events(job.job_id, 0, 100)) == released.seq


@on_every(ADAPTERS)
async def test_a_save_of_a_job_that_is_not_there_is_false(on: Harness) -> None:
    job = make(1).job
    cancelled = decide(job, CancelRequested(), at(1))
    assert not await on.ledger.save(cancelled.job, job.version, cancelled.events)


@on_every(ADAPTERS)
async def test_saves_that_do_not_wait_for_each_other_land_in_order(on: Harness) -> None:
    made = make(1, released=True)
    await on.create(made)
    life = life_of(made.job)
    landed = await asyncio.gather(
        *(on.ledger.save(d.job, d.job.version - 1, d.events) for d in life)
    )
    assert landed == [True] * len(life)
    assert await on.ledger.load(made.job.job_id) == life[-1].job
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_a_create_and_its_saves_may_be_under_way_together(on: Harness) -> None:
    held, released = make(1), make(2, released=True)
    release = decide(held.job, release_of(held.job), at(1))
    ack = decide(released.job, ack_of(released.job), at(1))
    await asyncio.gather(
        on.ledger.create(held.claim, held.job, held.events),
        on.ledger.create(released.claim, released.job, released.events),
        on.ledger.save(release.job, held.job.version, release.events),
        on.ledger.save(ack.job, released.job.version, ack.events),
    )
    assert await on.ledger.load(held.job.job_id) == release.job
    assert await on.ledger.load(released.job.job_id) == ack.job
    assert await on.ledger.verify() == []


# -- events ----------------------------------------------------------------------------------


@on_every(ADAPTERS)
async def test_events_have_no_gap_and_pages_start_anywhere(on: Harness) -> None:
    made = make(1, released=True)
    await on.create(made)
    written = list(made.events)
    for decision in life_of(made.job):
        await on.save(decision)
        written += decision.events
    total = written[-1].seq
    assert [event.seq for event in written] == list(range(1, total + 1))
    for after in range(total + 1):
        for limit in (1, 2, total):
            page = await on.ledger.events(made.job.job_id, after, limit)
            assert list(page) == written[after : after + limit]
    assert list(await on.ledger.events("nobody", 0, 10)) == []


@on_every(ADAPTERS)
async def test_a_heartbeat_is_saved_without_an_event(on: Harness) -> None:
    made = make(1, released=True)
    job = await on.create(made)
    job = await on.apply(job, ack_of(job))
    seq = job.seq
    run = job.steps[0].executions[-1]
    job = await on.apply(job, HeartbeatReceived("ocr", run.attempt_no, run.exec_id))
    assert job.seq == seq
    assert await on.ledger.load(job.job_id) == job
    assert await on.ledger.verify() == []


@on_every(ADAPTERS)
async def test_what_json_carries_is_loaded_as_it_was(on: Harness) -> None:
    strange = {"huge": 2**80, "text": "→ \u2028 😀", "deep": [{"a": None, "b": 1.5}]}
    made = make(1, payload=strange)
    await on.create(made)
    loaded = await on.ledger.load(made.job.job_id)
    assert loaded is not None
    assert loaded.plan.payload == strange


# -- what outlives the process ---------------------------------------------------------------


@on_every(ADAPTERS, DURABLE)
async def test_what_was_acknowledged_is_there_after_opening_again(on: Harness) -> None:
    held, moved = make("held"), make("moved", "tenant_b", released=True)
    await on.create(held)
    await on.create(moved)
    last = await on.save(life_of(moved.job)[0])
    before = await on.ledger.inflight(), await on.ledger.ready_queues(range(16))
    await on.reopen()
    assert await on.ledger.load(held.job.job_id) == held.job
    assert await on.ledger.load(moved.job.job_id) == last
    assert (await on.ledger.inflight(), await on.ledger.ready_queues(range(16))) == before
    assert len(await on.ledger.events(last.job_id, 0, 100)) == last.seq
    assert await on.ledger.verify() == []
    cancelled = decide(last, CancelRequested(immediate=True), at(99))
    assert await on.ledger.save(cancelled.job, last.version, cancelled.events)


@on_every(ADAPTERS, DURABLE)
async def test_fields_that_this_version_does_not_know_are_written_back(on: Harness) -> None:
    job = await on.create(make(1, released=True))
    new = {"from_the_future": {"a": [1]}}

    def extend(doc: dict[str, object]) -> None:
        step = doc["steps"][0]  # type: ignore[index]
        doc["owed"] = [{"id": "x", "kind": "notify_client", "target": "", "attempts": 1, "next": 9}]
        for place in (doc, step, step["entry"], step["runs"][0], doc["owed"][0]):  # type: ignore[index]
            place.update(new)

    await on.tamper.edit(job.job_id, extend)
    ledger = await on.reopen()
    loaded = await ledger.load(job.job_id)
    assert loaded is not None
    await on.apply(loaded, ack_of(loaded))
    again = await ledger.load(job.job_id)
    assert again is not None
    step = again.steps[0]
    assert step.entry is not None
    assert again.extra == step.extra == step.entry.extra == step.executions[0].extra == new
    assert again.owed[0].extra == new


@on_every(ADAPTERS, DURABLE)
async def test_columns_that_this_version_does_not_know_stay(on: Harness) -> None:
    job = await on.create(make(1, released=True))
    await on.tamper.extend(job.job_id)
    before = await on.tamper.extended(job.job_id)
    assert before
    ledger = await on.reopen()
    loaded = await ledger.load(job.job_id)
    assert loaded is not None
    for decision in life_of(loaded):
        await on.save(decision)
    assert await on.tamper.extended(job.job_id) >= before
    assert await ledger.verify() == []


@on_every(ADAPTERS, DURABLE)
async def test_positions_are_not_given_twice_across_openings(on: Harness) -> None:
    first = await on.create(make(1))
    second = await on.create(make(2))
    await on.apply(first, CancelRequested())
    await on.reopen()
    third = await on.create(make(3))
    routing = third.plan.routing
    entries = await on.ledger.ready("ocr-service", routing.lane, "tenant_a", 10)
    assert [entry.job_id for entry in entries] == [second.job_id, third.job_id]
    assert replace(entries[0], position=0) != replace(entries[1], position=0)
