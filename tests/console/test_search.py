"""Finding a job by any id: among all jobs where a ledger has an index, and only what is the caller's."""

from dataclasses import replace
from typing import Any

import pytest

from lucius.core.errors import LedgerRowUnreadableError
from lucius.http.console.lists import find
from lucius.http.context import ANYONE, ApiContext, Caller, Role
from tests.api.world import World, accepted, client_of, context_of

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
