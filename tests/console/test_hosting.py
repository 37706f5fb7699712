"""The console lives at `/`, or under a path behind a proxy, whether or not the proxy takes the path away."""

from pathlib import Path

import httpx
from playwright.async_api import Browser, expect

from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import served
from tests.console.test_orders import token_in

pytestmark = IN_BROWSER


async def test_the_console_lives_under_a_path(browser: Browser, tmp_path: Path) -> None:
    """Here the proxy passes the path on; `test_a_proxy_may_take_the_path_away` has the other one."""
    url = "http://127.0.0.1:1/ops"
    async with served(tmp_path, auth="keys", console_url=url) as server:
        key = server.key()
        server.authorized(key)
        job_id = await server.accepted()
        async with visiting(browser, f"{server.url}/ops") as visit:
            asked: list[str] = []
            visit.page.on("request", lambda request: asked.append(request.url))
            await visit.sign_in(key)
            await visit.to("/jobs")
            async with visit.page.expect_navigation():  # the list has a "Pause…" as well
                await visit.page.get_by_text(job_id).click()
            await visit.order("Pause")
            assert visit.page.url.startswith(f"{server.url}/ops/jobs/{job_id}")
            await expect(visit.page.locator("#stream")).to_have_text("live")
            (cookie,) = await visit.context.cookies()
            assert cookie["path"] == "/ops"
        assert all(each.startswith(f"{server.url}/ops/") for each in asked)


async def test_a_proxy_may_take_the_path_away(tmp_path: Path) -> None:
    async with served(tmp_path, console_url="http://127.0.0.1:1/ops") as server:
        page = (await server.client.get("/jobs")).text
        assert page == (await server.client.get("/ops/jobs")).text.replace(
            token_in((await server.client.get("/ops/jobs")).text), token_in(page)
        )
        assert 'href="/ops/services"' in page
        assert (await server.client.get("/opsjobs")).status_code == 404


async def test_a_page_of_another_host_is_refused(tmp_path: Path) -> None:
    """Without authentication a web page whose name leads to loopback stays outside."""
    async with served(tmp_path) as server, httpx.AsyncClient(base_url=server.url) as visitor:
        answer = await visitor.get("/", headers={"host": "evil.test"})
    assert answer.status_code == 421
