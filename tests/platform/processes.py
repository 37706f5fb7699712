"""Other processes, watched from outside."""

import asyncio
import os


async def gone(*pids: int) -> None:
    """Return once all of them have ended. The kernel tells; nobody looks again and again."""
    await asyncio.gather(*map(_gone, pids))


async def _gone(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(30):
            await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
