"""A job that ended while its process died, and that cannot be read: it holds up no other job of its lane."""

import pytest

from tests.conformance.azure_ledgers import AzureTamper, single
from tests.conformance.jobs import ack_of, at, success_of
from tests.faults.azure_operations import STEP, Site, applied, lived, request
from tests.faults.stopping_store import DeadError, Fate, StoppingStore


async def test_what_is_due_beside_it_is_found() -> None:
    site = Site(lambda store, clock: single(store, "t", clock))
    await site.by_another(lived(ack_of, types=STEP))
    dying = site.open(StoppingStore(site.store, 4, Fate.UNSENT))
    with pytest.raises(DeadError):
        await applied(dying, "one", success_of)
    job_id = request("one").job.job_id
    await AzureTamper(site.store, "t").ruin(job_id, "document")
    other = request("two", "another", released=True)
    await site.by_another(lambda ledger: ledger.create(other.claim, other.job, other.events))
    site.wait(hours=1)
    ledger = site.open()
    due = await ledger.due(at(10**8), range(16), 10)
    assert [each.job_id for each in due] == [other.job.job_id]
