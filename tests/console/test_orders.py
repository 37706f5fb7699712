"""Orders from the console: what the API does, counted first where there are many, and only with its token."""

from pathlib import Path

import httpx
from playwright.async_api import Browser, expect

from lucius.http.context import Role
from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import Served, served

pytestmark = IN_BROWSER
OVERVIEWS = ("/jobs", "/", "/failures", "/services")


async def state_of(server: Served, job_id: str) -> str:
    return str((await server.job(job_id))["state"])


async def test_every_order_for_a_job(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        failed, other = await server.failed("failed"), await server.failed("other")
        live = await server.accepted("live")
        async with visiting(browser, server.url) as visit:
            await visit.to(f"/jobs/{live}")
            await visit.order("Pause")
            assert (await state_of(server, live)).startswith("PAUS")
            assert "Pause: taken" in await visit.text()
            await visit.order("Resume")
            assert await state_of(server, live) in ("QUEUED", "DISPATCHING", "IN_PROGRESS")
            await visit.page.get_by_text("Cancel…", exact=True).click()
            await visit.page.check("input[name=immediate]")
            await visit.submit("Cancel this job")
            assert await state_of(server, live) == "CANCELLED"
            await visit.to(f"/jobs/{failed}")
            await visit.order("Redrive")
            new = visit.page.url.rpartition("/")[2].partition("?")[0]
            assert (await server.job(new))["redrive_of"] == failed
            await visit.to(f"/jobs/{other}")
            await visit.order("Dismiss")
            assert (await server.job(other))["dismissed_at"] is not None
            assert await visit.page.get_by_text("Dismiss…", exact=True).count() == 0


async def test_an_order_for_many_counts_first(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        mine = [await server.accepted(f"a{n}", tenant_id="tenant_a") for n in range(3)]
        others = await server.accepted("b", tenant_id="tenant_b")
        async with visiting(browser, server.url) as visit:
            await visit.to("/jobs?tenant_id=tenant_a")
            await visit.page.get_by_role("link", name="Cancel…").click()
            await expect(visit.page.locator("h1")).to_have_text("Cancel 3 jobs?")
            assert "lucius jobs cancel --tenant tenant_a" in await visit.text()
            assert await state_of(server, mine[0]) == "DISPATCHING"
            later = await server.accepted("a9", tenant_id="tenant_a")
            await visit.page.check("input[name=immediate]")
            await visit.submit("Cancel 3 jobs")
            assert "Cancel: 3 of 3" in await visit.text()
        states = [await state_of(server, job_id) for job_id in (*mine, later, others)]
    assert sorted(states[:4]) == ["CANCELLED"] * 3 + ["DISPATCHING"], "no more than were counted"
    assert states[4] == "DISPATCHING"


def token_in(page: str) -> str:
    return page.partition('name="form_token" value="')[2].partition('"')[0]


async def test_who_may_only_read_has_no_buttons_and_gives_no_orders(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path, auth="keys") as server:
        server.authorized(server.key())
        failed, job_id = await server.failed("failed"), await server.accepted("live")
        async with visiting(browser, server.url) as visit:
            await visit.sign_in(server.key(Role.READ))
            for path in (f"/jobs/{job_id}", f"/jobs/{failed}", *OVERVIEWS):
                assert await visit.to(path) == 200
                assert await visit.page.locator("main form[method=post]").count() == 0
                assert await visit.page.locator("main a[href*='/jobs/order']").count() == 0
                assert await visit.page.locator("main a[href*='/redrive']").count() == 0
            assert await visit.to("/jobs/order?verb=cancel") == 403
            assert await visit.to("/failures/redrive?group=x") == 403
            assert await visit.to("/jobs/failed") == 403
            own = await visit.page.context.cookies()
            cookies = {each["name"]: each["value"] for each in own}
        async with httpx.AsyncClient(base_url=server.url, cookies=cookies) as visitor:
            token = token_in((await visitor.get("/jobs")).text)
            refused = await visitor.post(f"/jobs/{job_id}/cancel", data={"form_token": token})
            assert refused.status_code == 403
            assert "FORBIDDEN" in refused.text
        assert await state_of(server, job_id) == "DISPATCHING"
