"""A process that writes to a ledger until it is killed, or until its disk is full.

Each line it prints is something that the ledger has acknowledged.
"""

import asyncio
import resource
import sys
from pathlib import Path

from lucius.adapters.ledgers.sqlite.ledger import SqliteLedger
from lucius.core.errors import LedgerUnavailableError
from tests.conformance.jobs import life_of, make

TASKS = 50


async def write_for_ever(path: Path, run: str) -> None:
    ledger = await SqliteLedger.open(path)

    async def task(number: int) -> None:
        n = 0
        while True:
            n += 1
            made = make((run, number, n), released=True)
            await ledger.create(made.claim, made.job, made.events)
            print(made.job.job_id, made.job.version, flush=True)
            for decision in life_of(made.job):
                job = decision.job
                assert await ledger.save(job, job.version - 1, decision.events)
                print(job.job_id, job.version, flush=True)

    await asyncio.gather(*(task(number) for number in range(TASKS)))


async def fill_the_disk(path: Path) -> None:
    """The limit on file sizes stands for a disk: it hits the log, in the middle of a commit."""
    ledger = await SqliteLedger.open(path)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    created, n = 0, 0
    try:
        while True:
            batch = [make((n, number)) for number in range(20)]
            n += 1
            await asyncio.gather(*(ledger.create(m.claim, m.job, m.events) for m in batch))
            created += len(batch)
    except LedgerUnavailableError as error:
        print(f"refused: {error}")
    assert all([await ledger.load(m.job.job_id) is None for m in batch])
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await asyncio.gather(*(ledger.create(m.claim, m.job, m.events) for m in batch))
    assert (await ledger.inflight()).total == created + len(batch)
    assert await ledger.verify() == []
    await ledger.close()
    print(f"created: {created + len(batch)}")


if __name__ == "__main__":
    verb, path = sys.argv[1], Path(sys.argv[2])
    asyncio.run(fill_the_disk(path) if verb == "fill" else write_for_ever(path, sys.argv[3]))
