"""Jobs of both engines in one ledger."""

from lucius.core.inputs import AttemptRequested
from lucius.core.plan import FIRST_SHARD, TEMPORAL
from lucius.core.routing import LANES
from tests.conformance.jobs import at, make
from tests.conformance.ledger_registry import ADAPTERS, DURABLE, Harness
from tests.conformance.on_every import on_every

FAR = at(10**8)
SHARDS = range(FIRST_SHARD[TEMPORAL] + LANES)


@on_every(ADAPTERS, DURABLE)
async def test_a_job_on_temporal_is_read_as_it_was_saved(on: Harness) -> None:
    job = await on.create(make(1, engine=TEMPORAL))
    moved = await on.apply(job, AttemptRequested(job.plan.steps[0].step_id, 1, "lease-1"))
    ledger = await on.reopen()
    assert await ledger.load(job.job_id) == moved
    assert [due.job_id for due in await ledger.due(FAR, SHARDS, 10)] == [job.job_id]
