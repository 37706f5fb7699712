"""`python -m lucius.dev.standins.service_bus --port 5672`: serve until interrupted, from memory."""

import argparse
import asyncio
import signal
from pathlib import Path

from lucius.dev.standins.service_bus.broker import POLICY, Access, Broker, Policy
from lucius.dev.standins.service_bus.server import HOST, StandIn


async def serve(port: int, access: Access) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with StandIn(Broker(access), port=port) as stand_in:
        print(stand_in.connection_string, flush=True)
        await stopping.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=f"A stand-in for Azure Service Bus on {HOST}.")
    parser.add_argument("--port", type=int, default=0, help="0: one that is free; it is printed")
    parser.add_argument(
        "--secret-file", type=Path, help="the key of its policy; else it makes a key"
    )
    given = parser.parse_args()
    key = given.secret_file.read_text() if given.secret_file else ""
    asyncio.run(serve(given.port, Access({POLICY: Policy(key)} if key else None)))


if __name__ == "__main__":
    main()
