"""Each page shows what it is for, in a browser, without authentication on loopback."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import Served, served

pytestmark = IN_BROWSER
BOTH = "OCR->EMBEDDING"


async def one_of_each(server: Served) -> dict[str, str]:
    """Jobs by what became of them."""
    jobs = {"failed": await server.failed("f", correlation_id="corr-1")}
    jobs["succeeded"] = await server.accepted("s")
    await server.work()
    jobs["running"] = await server.accepted("r", request_type=BOTH)
    (directive,) = await server.pull()
    await server.reply("ack", directive, worker_id="worker-7")
    return jobs


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
async def test_every_page_is_accessible_and_fits(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    async with served(tmp_path) as server:
        jobs = await one_of_each(server)
        paths = [
            "/",
            "/jobs",
            "/jobs/failed",
            "/failures",
            "/services",
            "/protocols",
            "/docs",
            "/search?q=job_",
        ]
        paths += [f"/jobs/{job_id}" for job_id in jobs.values()]
        paths += ["/jobs/order?verb=cancel", "/jobs/order?verb=resume", "/jobs/nobody"]
        how = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
        async with visiting(browser, server.url, **how) as visit:
            for path in paths:
                await visit.to(path)
                assert await visit.faults() == [], path
                wide = await visit.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, path


async def test_a_job_says_why_and_where_its_time_went(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        jobs = await one_of_each(server)
        async with visiting(browser, server.url) as visit:
            await visit.to(f"/jobs/{jobs['failed']}")
            text = await visit.text()
            assert "BROKEN: it is" in await visit.text(".why-card")
            assert {"corr-1", "s3://bucket/in.pdf"} <= set(text.split())
            assert "failure final" in text
            assert f"lucius job redrive {jobs['failed']}" in await visit.page.content()
            await visit.to(f"/jobs/{jobs['running']}")
            assert "worker-7" in await visit.text(".timeline")
            for spent in ("ack", "running"):
                assert await visit.page.locator(f".timeline rect.{spent}").count() == 1


async def test_a_job_moves_before_your_eyes(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        job_id = await server.accepted()
        async with visiting(browser, server.url) as visit:
            await visit.to(f"/jobs/{job_id}")
            await expect(visit.page.locator("#stream")).to_have_text("live")
            await server.work()
            state = visit.page.locator(".job-head .state")
            await expect(state).to_have_text("succeeded")
            await expect(visit.page.locator("#events")).to_contain_text("success")


async def test_the_keyboard_finds_moves_and_helps(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        jobs = [await server.accepted(str(number)) for number in range(3)]
        async with visiting(browser, server.url) as visit:
            press, focused = visit.page.keyboard.press, "document.activeElement.textContent"
            await visit.to("/jobs")
            await press("j")
            await press("j")
            assert await visit.page.evaluate(focused) == jobs[1]
            await press("k")
            assert await visit.page.evaluate(focused) == jobs[2]
            await press("?")
            await expect(visit.page.locator("#keys")).to_be_visible()
            assert await visit.faults() == []
            await press("Escape")
            await expect(visit.page.locator("#keys")).to_be_hidden()
            await press("/")
            await visit.page.keyboard.type(jobs[0])
            async with visit.page.expect_navigation():
                await press("Enter")
            assert visit.page.url == f"{server.url}/jobs/{jobs[0]}"
            await press("g")
            async with visit.page.expect_navigation():
                await press("p")
            assert visit.page.url == f"{server.url}/protocols"
