"""A turn of the event loop takes so many pieces of work; what is quick comes in between."""

import asyncio
from datetime import UTC, datetime
from itertools import pairwise

from lucius.admission.ingress import Ingress, IngressPolicy
from lucius.buses.memory import MemoryBus
from lucius.configs.files import FileConfig
from lucius.engines.outbox.engine import A_TURN
from lucius.engines.outbox.pace import Pace
from lucius.ledgers.memory import MemoryLedger
from tests.engine.world import envelope
from tests.wiring import outbox


async def turns_of(pace: Pace, pieces: int) -> list[int]:
    """In which turn of the loop each piece came to run."""
    loop, turn, ran = asyncio.get_running_loop(), 0, list[int]()

    def count() -> None:
        nonlocal turn
        turn += 1
        if len(ran) < pieces:
            loop.call_soon(count)

    async def piece() -> None:
        await pace.turn()
        ran.append(turn)

    loop.call_soon(count)
    await asyncio.gather(*(piece() for _ in range(pieces)))
    return ran


async def test_no_turn_of_the_loop_takes_more_than_its_share() -> None:
    ran = await turns_of(Pace(4), 22)
    assert max(ran.count(turn) for turn in ran) == 4


async def test_without_the_limit_one_turn_takes_all() -> None:
    assert len(set(await turns_of(Pace(1_000), 22))) == 1


async def test_who_comes_alone_does_not_wait() -> None:
    pace, turned = Pace(1), False

    def turn() -> None:
        nonlocal turned
        turned = True

    asyncio.get_running_loop().call_soon(turn)
    await pace.turn()
    assert not turned


async def test_pieces_go_in_the_order_in_which_they_came() -> None:
    pace, order = Pace(2), list[int]()

    async def piece(number: int) -> None:
        await pace.turn()
        order.append(number)

    await asyncio.gather(*(piece(number) for number in range(9)))
    assert order == sorted(order)


async def test_who_gives_up_waiting_takes_no_turn() -> None:
    pace = Pace(1)
    await pace.turn()
    waiting = [asyncio.ensure_future(pace.turn()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait_for(asyncio.gather(*waiting[1:]), 5)


async def test_submissions_that_come_together_leave_turns_to_others() -> None:
    ingress = Ingress(FileConfig(), IngressPolicy())
    engine = outbox(MemoryLedger(), MemoryBus(), ingress, now=lambda: datetime.now(UTC)).engine
    submitted, seen = 0, list[int]()

    async def submit(number: int) -> None:
        nonlocal submitted
        await engine.submit(envelope(number=number))
        submitted += 1

    async def look() -> None:
        while submitted < 100:
            seen.append(submitted)
            await asyncio.sleep(0)

    await asyncio.gather(look(), *(submit(number) for number in range(100)))
    assert max(after - before for before, after in pairwise(seen)) <= A_TURN
