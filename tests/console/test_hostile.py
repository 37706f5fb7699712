"""Whatever clients and workers send is shown as text: nothing runs, nothing is added to a page."""

from pathlib import Path
from typing import Any

from playwright.async_api import Browser

from tests.console.browser import Visit, visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import Served, served

pytestmark = IN_BROWSER
SCRIPT = "<script>window.owned=1</script>"
IMAGE = "\"><img src=x onerror='window.owned=1'>"
ATTRIBUTE = "' onfocus=window.owned=1 autofocus x='"
TEMPLATE = "{{7919*6841}}{% raw %}"
WORKED_OUT = str(7919 * 6841)
"""What a template engine would make of it; long, so that no path or id holds it by chance."""
REVERSED = "safe\u202egnp.exe"
LINK = "javascript:window.owned=1"
VISIBLE = SCRIPT + IMAGE + ATTRIBUTE + TEMPLATE
"""Ids take nothing that cannot be seen."""
ALL = VISIBLE + REVERSED
ADDED = "img, script:not([src]), [onerror], [onfocus], a[href^=javascript]"


async def hostile_jobs(server: Served) -> dict[str, str]:
    """One failed and one running job, with hostile text in every field that takes any."""
    given: dict[str, Any] = {
        "tenant_id": IMAGE,
        "correlation_id": VISIBLE,
        "doc_id": VISIBLE,
        "payload": {"note": ALL, SCRIPT: [IMAGE, LINK]},
        "input_ref": {"uri": "s3://bucket/<script>window.owned=1</script>", "about": ALL},
        "output_ref": {"uri": "s3://bucket/out.json", IMAGE: SCRIPT},
        "more": {SCRIPT: ALL},
    }
    failed = await server.accepted(VISIBLE, **given)
    (directive,) = await server.pull()
    await server.reply("ack", directive, worker_id=IMAGE)
    fields = {"error_code": SCRIPT, "error_message": ALL}
    await server.reply("result", directive, status="FAILED_FINAL", worker_id=IMAGE, **fields)
    running = await server.accepted("second", **given)
    (directive,) = await server.pull()
    await server.reply("ack", directive, worker_id=IMAGE)
    return {"failed": failed, "running": running}


async def untouched(visit: Visit) -> bool:
    """Nothing ran, and no element came from a text."""
    owned = await visit.page.evaluate("window.owned === undefined")
    added = await visit.page.locator(ADDED).count()
    return bool(owned) and added == 0


async def test_hostile_text_stays_text_on_every_page(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        jobs = await hostile_jobs(server)
        async with visiting(browser, server.url) as visit:
            for path in ("/", "/jobs", "/jobs/failed", "/services", "/failures", "/search?q=job_"):
                await visit.to(path)
                assert await untouched(visit), path
            for job_id in jobs.values():
                await visit.to(f"/jobs/{job_id}")
                assert await untouched(visit)
                text = await visit.page.content()
                assert WORKED_OUT not in text
                assert "\u202e" not in text
            await visit.to(f"/jobs/{jobs['failed']}")
            shown = await visit.text()
            assert SCRIPT in shown
            assert TEMPLATE in shown
            assert "<img src=x" in shown
            assert "safe\\u202egnp.exe" in shown


async def test_hostile_questions_stay_text(browser: Browser, tmp_path: Path) -> None:
    """What an address says: filters, searches, cursors, the path itself."""
    async with served(tmp_path) as server:
        job_id = await server.accepted()
        async with visiting(browser, server.url) as visit:
            for text in (SCRIPT, IMAGE, ATTRIBUTE, TEMPLATE):
                quoted = "".join(f"%{byte:02x}" for byte in text.encode())
                for path in (
                    f"/search?q={quoted}",
                    f"/jobs?tenant_id={quoted}&request_type={quoted}",
                    f"/jobs?created_from={quoted}",
                    f"/jobs?cursor={quoted}",
                    f"/jobs?{quoted}={quoted}",
                    f"/jobs/{quoted.replace('%2f', 'x')}",
                    f"/jobs/{job_id}?q={quoted}&done={quoted}",
                    f"/jobs/order?verb=cancel&tenant_id={quoted}",
                    f"/jobs/order?verb={quoted}",
                ):
                    await visit.to(path)
                    assert await untouched(visit), path


async def test_even_what_slipped_through_could_not_run(browser: Browser, tmp_path: Path) -> None:
    """The policy forbids scripts and styles of the page itself, and of others."""
    async with served(tmp_path) as server, visiting(browser, server.url) as visit:
        await visit.to("/jobs")
        await visit.page.evaluate(
            """() => {
                    const script = document.createElement("script");
                    script.textContent = "window.owned = 1";
                    document.body.append(script);
                    document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.owned=1'>");
                }"""
        )
        assert await visit.page.evaluate("window.owned === undefined")
        assert any("Content Security Policy" in said for said in visit.complaints)
        visit.complaints.clear()
