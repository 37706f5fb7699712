"""Two tenants at the console never see each other: no job, no id, no number, and no order reaches over."""

from pathlib import Path

import httpx
from playwright.async_api import Browser

from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import served
from tests.console.test_orders import state_of, token_in

pytestmark = IN_BROWSER


async def test_two_tenants_never_see_each_other(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path, auth="keys") as server:
        server.authorized(server.key())
        mine = await server.failed("mine", tenant_id="tenant_a")
        theirs = await server.failed("theirs", tenant_id="tenant_b", correlation_id="their-corr")
        live = await server.accepted("live", tenant_id="tenant_b")
        async with visiting(browser, server.url) as visit:
            await visit.sign_in(server.key(tenants=("tenant_a",)))
            paths = ["/", "/jobs", "/jobs/failed", "/jobs?tenant_id=tenant_b", "/services"]
            paths += ["/protocols", "/failures", "/search?q=job_", "/search?q=their-corr"]
            paths += [f"/search?q={theirs}", f"/jobs/{theirs}", f"/jobs/{live}/live"]
            paths += ["/jobs/order?verb=cancel", "/jobs/order?verb=redrive&tenant_id=tenant_b"]
            for path in paths:
                await visit.to(path)
                page = await visit.page.content()
                for foreign in ("tenant_b", theirs, live, "their-corr"):
                    assert foreign in path or foreign not in page, path
            assert await visit.to(f"/jobs/{theirs}") == 404
            await visit.to("/")
            text = await visit.text()
            assert "Live jobs\n0" in text
            assert "Dead letters\n1" in text
            await visit.to("/jobs/failed")
            assert mine in await visit.text()
            await visit.to("/jobs/order?verb=cancel")
            assert "nothing to do" in await visit.text()
            cookies = {each["name"]: each["value"] for each in await visit.context.cookies()}
        async with httpx.AsyncClient(base_url=server.url, cookies=cookies) as visitor:
            form = {"form_token": token_in((await visitor.get("/jobs")).text), "immediate": "yes"}
            for wanted in (theirs, "no_such_job"):
                found = await visitor.get(f"/search?q={wanted}")
                assert (found.status_code, "No such job" in found.text) == (200, True)
            assert (await visitor.post(f"/jobs/{live}/cancel", data=form)).status_code == 404
            many = {**form, "verb": "cancel", "counted": "9", "tenant_id": "tenant_b"}
            done = await visitor.post("/jobs/order", data=many)
            assert "0 of 0" in done.text
        assert await state_of(server, live) == "DISPATCHING"
