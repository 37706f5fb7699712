"""What open pages cost: nothing while nobody looks, and together no more than a small share."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser

from lucius.http.console.live import LONGEST, SHARE, SHORTEST, Pulse
from lucius.http.console.now import KEPT, Shared
from tests.api.world import World
from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import served

pytestmark = IN_BROWSER


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def rendered(pulse: Pulse, clock: Clock, seconds: float, waits: float = 0.0) -> None:
    """A hundred pages, each of which takes so long, and waits for others so long."""

    async def others() -> None:
        clock.now += waits

    async def made() -> None:
        clock.now += seconds / 2
        await asyncio.gather(others())
        clock.now += seconds / 2

    for _ in range(100):
        await pulse.page(made())


@pytest.mark.parametrize(("pages", "seconds"), [(1, 0.001), (10, 0.02), (10, 0.1), (100, 0.01)])
async def test_all_pages_together_take_at_most_their_share(pages: int, seconds: float) -> None:
    clock = Clock()
    pulse = Pulse(clock)
    pulse.listeners = pages
    await rendered(pulse, clock, seconds)
    assert pulse.pause() >= SHORTEST
    assert pages * seconds / pulse.pause() <= SHARE * 1.01


async def test_a_page_that_is_given_up_is_cancelled() -> None:
    pulse, entered = Pulse(), asyncio.Event()
    ended: list[str] = []

    async def made() -> None:
        try:
            entered.set()
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    task = asyncio.create_task(pulse.page(made()))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cleaned up"]


async def test_a_page_that_takes_for_ever_is_still_looked_at_once_a_minute() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    pulse.listeners = 1000
    await rendered(pulse, clock, 10)
    assert pulse.pause() == LONGEST


async def test_many_who_look_at_once_are_answered_with_one_reading() -> None:
    world, made = World(), []

    async def make() -> int:
        made.append(1)
        return len(made)

    shared = Shared(Pulse(), lambda: world.now)
    assert [await shared.get("a", make) for _ in range(10)] == [1] * 10
    assert await shared.get("b", make) == 2
    world.now += KEPT
    assert await shared.get("a", make) == 3


async def test_a_hidden_page_and_a_closed_one_are_not_listened_for(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as server, visiting(browser, server.url) as visit:
        await visit.to("/jobs")
        await visit.page.wait_for_function("document.getElementById('stream').textContent")
        await visit.page.evaluate(
            """() => {
                    Object.defineProperty(document, "hidden", {value: true});
                    document.dispatchEvent(new Event("visibilitychange"));
                }"""
        )
        assert await visit.text("#stream") == ""
