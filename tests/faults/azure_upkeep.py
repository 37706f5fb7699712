"""What looks after an Azure ledger, stopped anywhere: scans, sweeps, takeovers and pruning."""

from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.core.inputs import Redriven
from tests.conformance.jobs import ack_of, at, release_of
from tests.faults.azure_operations import (
    CANCEL,
    START,
    Act,
    Operation,
    Setting,
    Site,
    abandoned,
    always,
    applied,
    applies,
    failed,
    lived,
    nothing,
    request,
    setting,
    settled,
    submits,
)


def later(act: Act, **span: float) -> Setting:
    async def setting_(site: Site) -> None:
        await site.by_another(act)
        site.wait(**span)

    return setting_


async def looks(ledger: AzureLedger) -> object:
    return await ledger.due(at(60 * 11 + START), range(16), 100)


async def sweeps(ledger: AzureLedger) -> object:
    return await ledger.sweep(at(60 * 11 + START))


async def left_a_ready_row(site: Site) -> None:
    """By a process that released its job, and died before it dropped the row."""
    await site.by_another(lived(released=False))
    assert await applied(site.open(), "one", release_of)


async def takes_over(ledger: AzureLedger) -> None:
    """A new owner of the lane takes up what is ready, and drops what is not."""
    for queue in await ledger.ready_queues(range(16)):
        for entry in await ledger.ready(queue.queue_name, queue.lane, queue.tenant_id, 100):
            await ledger.load(entry.job_id)
    await ledger.close()


async def prunes(ledger: AzureLedger) -> object:
    return await ledger.prune(at(10**8), 100)


async def redriven(ledger: AzureLedger) -> None:
    """A chain of two that have ended: the second needs the workspace of the first."""
    await failed(ledger)
    await submits("one", released=True, redrive_of=request("old").job.job_id)(ledger)
    await applied(ledger, "old", always(Redriven(request("one").job.job_id)))
    await applied(ledger, "one", CANCEL)
    await applied(ledger, "one", settled)


UPKEEP = (
    Operation("move a wake-up", later(lived(ack_of), minutes=11), looks, applies(CANCEL)),
    Operation("give up a claim", abandoned(nothing, submits("one")), looks, submits("two")),
    Operation("sweep claims", abandoned(nothing, submits("one")), sweeps, submits("two")),
    Operation("take over a lane", left_a_ready_row, takes_over, applies(CANCEL)),
    Operation(
        "fence a late save",
        abandoned(lived(released=False), applies(release_of)),
        looks,
        applies(CANCEL),
    ),
    Operation("prune", setting(lived(CANCEL)), prunes, prunes),
    Operation("prune a chain", setting(redriven), prunes, prunes),
)
