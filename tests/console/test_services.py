"""Services and what is wrong: workers, pauses, causes. What `lucius why` says stands at the top."""

from pathlib import Path

from playwright.async_api import Browser

from lucius.http.context import Role
from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import served

pytestmark = IN_BROWSER


async def test_a_service_shows_its_workers_and_can_be_paused(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path) as server:
        job_id = await server.accepted("one")
        (directive,) = await server.pull()
        await server.reply("ack", directive, worker_id="worker-7")
        async with visiting(browser, server.url) as visit:
            await visit.to("/services")
            ocr = visit.page.locator(".service", has_text="worker-7")
            assert "Running\n1" in await ocr.inner_text()
            await ocr.get_by_text("Pause…").click()
            await ocr.locator("input[name=reason]").fill("the <model> is down")
            await visit.submit("Pause ocr")
            text = await visit.text()
            assert "Pause ocr: taken" in text
            assert "the <model> is down" in text
            assert await visit.faults() == []
            await server.accepted("two")
            causes = (await server.client.get("/v1/why")).json()["causes"]
            await visit.to("/")
            standing = await visit.text(".standing")
            assert causes, "a service that is paused while jobs wait for it"
            assert all(each["summary"] in standing for each in causes)
            assert "worker-7" in await visit.text()
            await visit.to("/services")
            await visit.page.get_by_text("Resume…").click()
            await visit.submit("Resume ocr")
            assert "the <model> is down" not in await visit.text("#live")
        assert (await server.job(job_id))["state"] == "IN_PROGRESS"


async def test_who_is_bound_to_a_tenant_reads_no_numbers_and_pauses_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(tmp_path, auth="keys") as server:
        server.authorized(server.key())
        await server.accepted("one", tenant_id="tenant_b")
        (directive,) = await server.pull()
        await server.reply("ack", directive, worker_id="worker-of-b")
        async with visiting(browser, server.url) as visit:
            await visit.sign_in(server.key(*Role, tenants=("tenant_a",)))
            for path in ("/services", "/"):
                await visit.to(path)
                assert "worker-of-b" not in await visit.page.content()
                assert await visit.page.locator("main form[method=post]").count() == 0
