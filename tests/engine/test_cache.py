"""The cache: bounded in bytes."""

import tracemalloc
from dataclasses import replace

import orjson
import pytest

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.ledgers.stored.job_codec import decode_job, encode_job
from lucius.adapters.ledgers.stored.plan_codec import decode_plan, encode_plan
from lucius.core.inputs import CancelRequested
from lucius.core.job import Job
from lucius.core.record import Packed
from lucius.engine.admission.ingress import Ingress
from lucius.engine.cache import ENDED_SHARE, JobCache
from tests.conformance.jobs import life_of, make
from tests.engine.world import envelope
from tests.faults.stage import PACKAGED
from tests.virtual import EPOCH
from tests.wiring import outbox

KIB = 1024
ROOM = 2**28
COPIES = 10
HEAVY = orjson.dumps({"steps": {"ocr": [[] for _ in range(42_000)]}})
"""126 kB of text. Parsed, it takes three megabytes."""


def job_of(key: object, payload: bytes = HEAVY) -> Job:
    """As read from the ledger."""
    made = make(key, released=True, payload=Packed(payload))
    return decode_job(decode_plan(encode_plan(made.job.plan)), encode_job(made.job))


# -- bytes -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_live_jobs_of_a_heavy_payload_take_little_more_than_their_text() -> None:
    cache, heavy = JobCache(ROOM), job_of(0)
    for n in range(1000):
        cache.put(replace(heavy, plan=replace(heavy.plan, job_id=f"job_{n}")))
    assert len(cache) == 1000
    assert cache.bytes < 1000 * (len(HEAVY) + 10 * KIB)


@pytest.mark.slow
@pytest.mark.parametrize("payload", [HEAVY, b'{"language":"en"}'], ids=["heavy", "light"])
@pytest.mark.parametrize("moves", [0, 5])
def test_what_is_counted_is_what_is_taken(payload: bytes, moves: int) -> None:
    made = make(1, released=True, payload=Packed(payload), extra={"x": [[] for _ in range(500)]})
    moved = ([made.job] + [decision.job for decision in life_of(made.job)])[moves]
    plan, doc = encode_plan(moved.plan), encode_job(moved)
    cache = JobCache(ROOM)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        jobs = [decode_job(decode_plan(plan), doc) for _ in range(COPIES)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    cache.put(jobs[0])
    assert 0.8 * taken / COPIES < cache.bytes < 2 * taken / COPIES


def test_beyond_its_bytes_the_job_that_moved_longest_ago_makes_room() -> None:
    cache = JobCache(1024 * KIB)
    jobs = [job_of(n) for n in range(9)]
    for job in jobs:
        cache.put(job)
        assert cache.bytes <= 1024 * KIB
    assert [cache.get(job.job_id) is not None for job in jobs] == [False] * 2 + [True] * 7


def test_jobs_that_have_ended_have_a_share_of_their_own() -> None:
    cache, live = JobCache(4 * 1024 * KIB), job_of("live")
    cache.put(live)
    for n in range(50):
        made = make(n, released=True, payload=Packed(HEAVY))
        cache.put(made.job)
        cache.put(life_of(made.job)[-1].job)
    assert cache.get(live.job_id) is live
    ended_bytes = cache.bytes - len(HEAVY)
    assert ended_bytes <= 4 * 1024 * KIB // ENDED_SHARE + 10 * KIB


def test_a_job_that_is_heavier_than_the_cache_is_not_kept() -> None:
    cache = JobCache(64 * KIB)
    cache.put(job_of(1))
    assert (len(cache), cache.bytes) == (0, 0)


def test_what_leaves_is_counted_no_more() -> None:
    cache = JobCache(ROOM)
    for n in range(3):
        made = make(n, released=True)
        cache.put(made.job)
        cache.put(life_of(made.job)[0].job)
    cache.put(life_of(make(0, released=True).job)[-1].job)
    cache.drop(make(1).job.job_id)
    cache.drop(make(2).job.job_id)
    cache.forget_ended()
    assert (len(cache), cache.bytes) == (0, 0)


async def test_what_does_not_fit_is_read_from_the_ledger_again() -> None:
    ledger = MemoryLedger()
    ingress = Ingress(PACKAGED)
    engine = outbox(ledger, MemoryBus(), ingress, now=lambda: EPOCH, cache_bytes=16 * KIB).engine
    ids = [(await engine.submit(envelope(request_type="OCR", number=n))).job_id for n in range(10)]
    assert len(engine._cache) < 10
    for job_id in ids:
        applied = await engine.apply(job_id, CancelRequested(immediate=True))
        assert applied is not None
        assert applied.job.terminal
