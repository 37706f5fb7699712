"""Anyone may ask whether a process is ready, at any rate: its dependencies are asked once at a time."""

import asyncio

from lucius.http.readiness import OK, Readiness


async def test_those_who_ask_at_once_share_one_answer() -> None:
    asked, free = 0, asyncio.Event()

    async def check() -> None:
        nonlocal asked
        asked += 1
        await free.wait()

    readiness = Readiness({"ledger": check}, 60.0)
    asking = [asyncio.create_task(readiness.ask()) for _ in range(100)]
    await asyncio.sleep(0)
    asking[0].cancel()
    free.set()
    said = await asyncio.gather(*asking[1:])
    assert asked == 1
    assert {each["ledger"].word for each in said} == {OK}
    await readiness.ask()
    assert asked == 2, "a later question is asked anew"
