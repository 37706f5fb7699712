"""A request whose process died before it wrote the job: another one writes it later, and it counts once."""

from datetime import timedelta

from lucius.core.decide import decide
from lucius.core.inputs import CancelRequested
from lucius.ports.ledger import Created, Inflight, Unfinished
from tests.adapters.test_azure_sweep import Opens, Site, on_both
from tests.conformance.jobs import START, make
from tests.faults.stopping_store import Fate


@on_both
async def test_who_completes_it_later_leaves_lists_and_counts_in_order(opens: Opens) -> None:
    site = Site(opens)
    await site.claimed(Fate.UNSENT)
    site.clock.moment = START + timedelta(seconds=7)
    ledger = site.open()
    begun = await ledger.claimed(site.made.claim)
    assert isinstance(begun, Unfinished)
    assert (begun.job_id, begun.accepted_at) == (site.made.job.job_id, START)
    again = make(2, now=begun.accepted_at, job_id=begun.job_id)
    assert await ledger.create(site.made.claim, again.job, again.events) == Created()
    ended = decide(again.job, CancelRequested(), site.clock())
    assert await ledger.save(ended.job, again.job.version, ended.events)
    await ledger.close()
    assert await site.open().inflight() == Inflight()
    assert await site.open().verify() == []
