"""Pages on a phone, and pages that refuse: what matters is in sight, and nobody falls out of the frame."""

from pathlib import Path

from playwright.async_api import Browser

from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import Served, served

pytestmark = IN_BROWSER


async def with_a_plan(server: Served) -> str:
    """A group of failures and a plan for it, which goes on for long."""
    for number in range(4):
        await server.failed(f"failed-{number}")
    (group,) = (await server.client.get("/v1/failures")).json()["groups"]
    body = {"filter": {"group": group["group"]}, "canary": 0, "rate": 0.001}
    assert (await server.client.post("/v1/redrives", json=body)).status_code == 202
    return str(group["group"])


async def test_a_filter_that_has_no_field_is_shown_and_kept(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as server:
        group = await with_a_plan(server)
        other = await server.accepted("other")
        async with visiting(browser, server.url) as visit:
            await visit.to(f"/jobs?group={group}&live=false")
            assert group in await visit.text(".chosen")
            await visit.page.fill("input[name=tenant_id]", "tenant_a")
            await visit.submit("Filter")
            assert f"group={group}" in visit.page.url
            assert other not in await visit.text()
            await visit.to("/jobs")
            assert await visit.page.locator(".chosen").count() == 0


async def test_who_meets_a_refusal_keeps_the_frame(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path, auth="keys") as server, visiting(browser, server.url) as visit:
        await visit.to("/no/such/page")
        assert await visit.page.locator("nav").count() == 0, "nobody knows who comes"
        await visit.sign_in(server.key(name="anna"))
        assert await visit.to("/jobs/nobody") == 404
        assert "anna" in await visit.text("header")
        assert await visit.page.locator("nav a").count() == 5
        assert await visit.faults() == []
        await visit.to("/jobs?state=NO_STATE")
        assert (await visit.text()).count("must be one of") == 1, "said once"
