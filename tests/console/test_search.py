"""Finding a job by any id: among all jobs where a ledger has an index, and only what is the caller's."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from lucius.api.context import ANYONE, ApiContext, Caller, Role
from lucius.console.search import SEARCHED, SHOWN, find
from lucius.core.errors import LedgerRowUnreadableError
from tests.api.world import World, accepted, client_of, context_of
from tests.insight.ward import Ward
from tests.virtual import VirtualLoop, run_virtually

ALICE = Caller("alice", frozenset((Role.READ,)), frozenset(("tenant_a",)))


class Unreadable:
    """An engine over a ledger with one row that cannot be read."""

    def __init__(self, world: World, job_id: str, tenant_id: str | None) -> None:
        self._engine = world.engine
        self._error = LedgerRowUnreadableError(job_id, "it is cut", tenant_id=tenant_id)

    async def job(self, job_id: str) -> Any:
        if job_id == self._error.job_id:
            raise self._error
        return await self._engine.job(job_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


async def test_a_search_does_not_tell_that_a_job_of_another_tenant_is_there() -> None:
    world = World()

    def engine(tenant_id: str | None) -> ApiContext:
        unreadable: Any = Unreadable(world, "job_9", tenant_id)
        return replace(context_of(world), engine=unreadable)

    for theirs in ("tenant_b", None):
        assert (await find(engine(theirs), ALICE, "job_9")).jobs == []
    with pytest.raises(LedgerRowUnreadableError):
        await find(engine("tenant_a"), ALICE, "job_9")
    await world.close()


async def test_last_and_beginnings_lead_to_jobs_of_the_callers_tenants_only() -> None:
    world = World()
    context = context_of(world)
    async with client_of(context) as client:
        mine = await accepted(client, tenant_id="tenant_a")
        theirs = await accepted(client, tenant_id="tenant_b", correlation_id="their-corr")
    for wanted, found in (("last", [mine]), (theirs, []), ("their-corr", []), ("job_", [mine])):
        assert [job.job_id for job in (await find(context, ALICE, wanted)).jobs] == found, wanted
    nobody = replace(ALICE, tenants=frozenset())
    assert (await find(context, nobody, "last")).jobs == []
    assert [job.job_id for job in (await find(context, ANYONE, "last")).jobs] == [theirs]
    await world.close()


def test_the_beginning_of_a_job_id_is_found_among_all_jobs_and_other_ids_among_the_newest() -> None:
    """An id begins with its time, so every ledger has an index for its beginning."""

    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop)
        context = replace(context_of(World()), engine=ward.engine)
        old = await ward.submit(correlation_id="long-ago")
        await asyncio.sleep(7200)
        for _ in range(SEARCHED):
            await ward.submit(correlation_id="now")
        for wanted in (old, old[:12], old[4:12]):
            found = await find(context, ANYONE, wanted)
            assert [job.job_id for job in found.jobs] == [old], wanted
            assert found.all_of_them
        lost = await find(context, ANYONE, "long-ago")
        assert (lost.jobs, lost.all_of_them) == ([], False), "and the page says so"
        many = await find(context, ANYONE, "now")
        assert (len(many.jobs), many.all_of_them) == (SHOWN, False)

    run_virtually(main)
