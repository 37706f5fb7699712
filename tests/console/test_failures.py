"""Failures in groups, and redrive plans: counted first, watched and stopped."""

import asyncio
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import Served, served
from tests.console.test_orders import state_of

pytestmark = IN_BROWSER


async def grouped(server: Served, count: int) -> str:
    """The group, once that many failures are counted in it."""
    async with asyncio.timeout(60):
        while True:
            groups = (await server.client.get("/v1/failures")).json()["groups"]
            if sum(group["count"] for group in groups) >= count:
                return str(groups[0]["group"])
            await asyncio.sleep(0)


async def test_a_group_is_shown_listed_and_redriven_by_a_plan(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as server:
        failed = [await server.failed(str(number)) for number in range(3)]
        group = await grouped(server, 3)
        async with visiting(browser, server.url) as visit:
            await visit.to("/failures")
            text = await visit.text()
            assert "BROKEN" in text
            assert "it is" in text
            assert await visit.faults() == []
            await visit.page.get_by_role("link", name="list").click()
            await expect(visit.page.locator("tbody tr")).to_have_count(3)
            await visit.to(f"/failures/redrive?group={group}")
            await expect(visit.page.locator("h1")).to_have_text("Redrive 3 jobs?")
            assert await visit.faults() == []
            await visit.page.fill("input[name=canary]", "1")
            await visit.page.fill("input[name=reason]", "fixed <now>")
            await visit.submit("Start the plan")
            plans = visit.page.locator("section", has_text="Redrive plans")
            await expect(plans).to_contain_text("fixed <now>")
            assert await visit.faults() == []
            await visit.submit("Stop")
            await expect(visit.page.locator(".state", has_text="stopped")).to_be_visible()
            assert await visit.to("/failures/redrive?group=nobody") == 404
        assert [await state_of(server, job_id) for job_id in failed] == ["FAILED_FINAL"] * 3
