"""Large things stay usable: a page has a bounded number of elements, however much there is behind it."""

from dataclasses import replace

from playwright.async_api import Browser

from lucius.core.ids import new_job_id
from lucius.core.inputs import CancelRequested
from lucius.ports.ledger import Claim
from tests.api.world import ENVELOPE, World
from tests.console.browser import visiting
from tests.console.conftest import IN_BROWSER
from tests.console.served import served_world

pytestmark = IN_BROWSER
MANY_JOBS = 100_000
MOST_ELEMENTS = 2_000
COUNT = "document.querySelectorAll('*').length"


async def test_100000_jobs_are_listed_a_page_at_a_time(browser: Browser) -> None:
    world = World()
    job_id = (await world.submit(ENVELOPE)).job_id
    await world.apply(job_id, CancelRequested(immediate=True))
    (model,) = world.ledger.jobs.values()
    for number in range(MANY_JOBS - 1):
        plan = replace(model.job.plan, job_id=new_job_id(world.now))
        claim = Claim("tenant_a", f"claim {number}", "body", keyed=True)
        await world.ledger.create(claim, replace(model.job, plan=plan), ())
    async with served_world(world) as url, visiting(browser, url) as visit:
        await visit.to("/jobs")
        rows, seen = visit.page.locator("tbody tr a"), set()
        for _ in range(3):
            assert await rows.count() == 50
            assert await visit.page.evaluate(COUNT) < MOST_ELEMENTS
            seen |= set(await rows.all_inner_texts())
            async with visit.page.expect_navigation():
                await visit.page.get_by_role("link", name="Older").click()
        assert len(seen) == 150
        await visit.to("/")
        assert "Accepted, last hour\n100,000" in await visit.text()
