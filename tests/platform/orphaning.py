"""A program that runs a process-isolated service and says which processes there are. It is to be killed."""

import asyncio

from tests.platform.bench import Bench
from tests.platform.isolated import Parent
from tests.virtual import VirtualLoop


async def main() -> None:
    bench = Bench(VirtualLoop())
    await bench.open()
    await bench.runner(Parent())
    await bench.send(1)
    pids = await bench.workspace.written("mem://lucius/tenant_a/job_1/ocr/1/lease_1/pids.txt")
    print(pids.decode().strip(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
