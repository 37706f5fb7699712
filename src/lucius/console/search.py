"""Finding a job by any id. A caller finds only what is theirs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller
from lucius.api.requests import MAX_ID, job_for
from lucius.api.routing import Context, KnownCaller
from lucius.api.views import job_view
from lucius.console.site import Pages, Site
from lucius.core.ids import digits_in, made_between
from lucius.core.job import Job
from lucius.ports.ledger import JobQuery

LAST: Final = "last"
SHOWN: Final = 50
SEARCHED: Final = 2000
"""Jobs that a search looks at, the newest first, for ids that no ledger has an index of."""
_PORTION: Final = 500
Fits = Callable[[Job], bool]


@dataclass(slots=True)
class FoundJobs:
    """`all_of_them`: no job is left that was not looked at."""

    jobs: list[Job]
    all_of_them: bool = True


async def _asked(q: str = "") -> None:
    """An id, how it begins, or `last`."""


class Search:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def search(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        wanted = request.query_params.get("q", "").strip()
        found = await find(context, caller, wanted) if 0 < len(wanted) <= MAX_ID else FoundJobs([])
        if len(found.jobs) == 1:
            return self._site.to(f"/jobs/{found.jobs[0].job_id}")
        return self._site.page(
            request,
            caller,
            "search.html",
            wanted=wanted,
            searched=SEARCHED,
            all_of_them=found.all_of_them,
            jobs=[job_view(job, steps=False) for job in found.jobs],
        )

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/search", self.search, takes=_asked)


async def find(context: ApiContext, caller: Caller, wanted: str) -> FoundJobs:
    """By a whole job id or its beginning, among all jobs; by another id, among the newest."""
    job = await job_for(context, wanted, caller)
    if job is not None:
        return FoundJobs([job])
    if caller.tenants is not None and not caller.tenants:
        return FoundJobs([])
    every = JobQuery(tenant_ids=caller.tenants, limit=_PORTION)
    if wanted == LAST:
        return await _among(context, every, lambda job: True, most=1)
    if (digits := digits_in(wanted)) is not None:
        first, after = made_between(digits)
        span = replace(every, created_from=first, created_to=after)
        begun = await _among(context, span, lambda job: job.job_id.startswith(f"job_{digits}"))
        if begun.jobs:
            return begun
    return await _among(context, every, lambda job: any(i.startswith(wanted) for i in _ids(job)))


async def _among(context: ApiContext, query: JobQuery, fits: Fits, most: int = SHOWN) -> FoundJobs:
    found = FoundJobs([])
    for _ in range(SEARCHED // _PORTION):
        page = await context.engine.jobs(query)
        found.jobs += [job for job in page.jobs if fits(job)]
        found.all_of_them = page.next_cursor is None
        if found.all_of_them or len(found.jobs) >= most:
            break
        query = replace(query, cursor=page.next_cursor)
    return FoundJobs(found.jobs[:most], found.all_of_them and len(found.jobs) <= most)


def _ids(job: Job) -> Iterator[str]:
    """Every id by which someone may know a job."""
    plan = job.plan
    trace = (plan.traceparent or "").split("-")[1:2]
    known = (
        job.job_id,
        plan.correlation_id,
        plan.doc_id,
        plan.idempotency_key,
        plan.redrive_of,
        job.redriven_by,
        *trace,
        *(execution.exec_id for step in job.steps for execution in step.executions),
    )
    return (each for each in known if each)
