"""Orders from the console: what the API does, counted first where there are many, and only with its token."""

from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from lucius.api.context import Role
from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import Served, served

pytestmark = IN_BROWSER


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


async def test_an_order_that_nothing_matches_has_no_button(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as server, visiting(browser, server.url) as visit:
        await visit.to("/jobs/order?verb=redrive")
        assert "nothing to do" in await visit.text()
        assert await visit.page.locator("main button").count() == 0
        assert await visit.to("/jobs/order?verb=explode") == 422


async def test_a_refused_order_says_why_and_leaves_the_job(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as server:
        job_id = await server.accepted()
        async with visiting(browser, server.url) as visit:
            await visit.to(f"/jobs/{job_id}")
            await visit.page.get_by_text("Pause…", exact=True).click()
            await server.work()
            await visit.submit("Pause this job")
            assert "JOB_TERMINAL" in await visit.text()
        assert await state_of(server, job_id) == "SUCCEEDED"


async def test_what_is_being_filled_in_is_not_replaced(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        job_id = await server.accepted()
        async with visiting(browser, server.url) as visit:
            await visit.to(f"/jobs/{job_id}")
            await expect(visit.page.locator("#stream")).to_have_text("live")
            await visit.page.get_by_text("Cancel…", exact=True).click()
            await visit.page.check("input[name=immediate]")
            async with visit.page.expect_event("console", lambda said: said.text == "looked"):
                await visit.page.evaluate(
                    "document.body.addEventListener('look', () => console.log('looked'))"
                )
                (directive,) = await server.pull()
                await server.reply("ack", directive)
            assert await visit.page.is_checked("input[name=immediate]")


def token_in(page: str) -> str:
    return page.partition('name="form_token" value="')[2].partition('"')[0]


@pytest.mark.parametrize("form_token", [None, "", "x", "ü", "that of another session"])
async def test_a_form_without_the_token_of_its_session_moves_nothing(
    tmp_path: Path, form_token: str | None
) -> None:
    async with served(tmp_path, auth="keys") as server:
        key = server.key()
        server.authorized(key)
        job_id = await server.accepted()
        async with httpx.AsyncClient(base_url=server.url) as visitor:
            strange = token_in((await visitor.get("/sign-in")).text)
            await visitor.post("/sign-in", data={"key": key, "form_token": strange})
            own = token_in((await visitor.get(f"/jobs/{job_id}")).text)
            given = strange if form_token == "that of another session" else form_token
            fields = {"immediate": "yes"} | ({} if given is None else {"form_token": given})
            for path in (f"/jobs/{job_id}/cancel", "/jobs/order", "/sign-out"):
                refused = await visitor.post(
                    path, data={**fields, "verb": "cancel", "counted": "1"}
                )
                assert (refused.status_code, "CROSS_ORIGIN" in refused.text) == (403, True)
            assert await state_of(server, job_id) == "DISPATCHING"
            taken = await visitor.post(f"/jobs/{job_id}/cancel", data={**fields, "form_token": own})
            assert taken.status_code == 303
            assert await state_of(server, job_id) == "CANCELLED"


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.test"}, {"sec-fetch-site": "cross-site"}]
)
async def test_a_form_of_another_site_moves_nothing_even_with_its_token(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with served(tmp_path) as server:
        job_id = await server.accepted()
        own = token_in((await server.client.get(f"/jobs/{job_id}")).text)
        path, fields = f"/jobs/{job_id}/cancel", {"form_token": own, "immediate": "yes"}
        refused = await server.client.post(path, data=fields, headers=headers)
        assert refused.status_code == 403
        assert await state_of(server, job_id) == "DISPATCHING"


async def test_who_may_only_read_has_no_buttons_and_gives_no_orders(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path, auth="keys") as server:
        server.authorized(server.key())
        failed, job_id = await server.failed("failed"), await server.accepted("live")
        async with visiting(browser, server.url) as visit:
            await visit.sign_in(server.key(Role.READ))
            for path in (f"/jobs/{job_id}", f"/jobs/{failed}", "/jobs", "/"):
                assert await visit.to(path) == 200
                assert await visit.page.locator("main form[method=post]").count() == 0
                assert await visit.page.locator("main a[href*='/jobs/order']").count() == 0
                assert await visit.page.get_by_role("link", name="Failures").count() == 0
            assert await visit.to("/jobs/order?verb=cancel") == 403
            assert await visit.to("/jobs/failed") == 403
            own = await visit.page.context.cookies()
            cookies = {each["name"]: each["value"] for each in own}
        async with httpx.AsyncClient(base_url=server.url, cookies=cookies) as visitor:
            token = token_in((await visitor.get("/jobs")).text)
            refused = await visitor.post(f"/jobs/{job_id}/cancel", data={"form_token": token})
            assert refused.status_code == 403
            assert "FORBIDDEN" in refused.text
        assert await state_of(server, job_id) == "DISPATCHING"
