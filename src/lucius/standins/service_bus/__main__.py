"""`python -m lucius.standins.service_bus --port 5672`: serve until interrupted, from memory."""

import argparse
import asyncio
import signal

from lucius.standins.service_bus.server import HOST, StandIn


async def serve(port: int) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with StandIn(port=port) as stand_in:
        print(stand_in.connection_string, flush=True)
        await stopping.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=f"A stand-in for Azure Service Bus on {HOST}.")
    parser.add_argument("--port", type=int, default=0, help="0: one that is free; it is printed")
    asyncio.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
