"""The list of jobs, and finding one by any id. Filters are in the address, so that a view can be shared."""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller, Role
from lucius.api.listing import PARAMETERS
from lucius.api.openapi import query_parameter
from lucius.api.operation import Operation
from lucius.api.requests import MAX_ID
from lucius.api.views import job_view
from lucius.console.orders import BULK_VERBS, dict_of, filters_of
from lucius.console.site import Site
from lucius.core.job import Job
from lucius.core.states import JobState
from lucius.ports.ledger import JobQuery

PAGE: Final = 50
SEARCHED: Final = 2000
"""Jobs that a search looks at, the newest first, for ids that no index has."""
SEARCH_PAGE: Final = 500


class Jobs:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def jobs(self, context: ApiContext, request: Request, caller: Caller) -> Response:
        return await self._site.pulse.page(self._listed(request, caller, "list_jobs"))

    async def dead_letters(self, context: ApiContext, request: Request, caller: Caller) -> Response:
        return await self._site.pulse.page(self._listed(request, caller, "list_dlq"))

    async def _listed(self, request: Request, caller: Caller, asks: str) -> Response:
        filters = filters_of(dict_of(request))
        query: dict[str, Any] = {**filters, "limit": PAGE}
        if cursor := request.query_params.get("cursor"):
            query["cursor"] = cursor
        page = await self._site.api.ask(request, caller, asks, query=query)
        return self._site.page(
            request,
            caller,
            "jobs.html",
            title="Jobs" if asks == "list_jobs" else "Dead letters",
            path="/jobs" if asks == "list_jobs" else "/jobs/failed",
            jobs=page["jobs"],
            next_cursor=page["next_cursor"],
            first=cursor is None,
            filters=filters,
            query=urlencode(filters, doseq=True),
            states=list(JobState),
            verbs={
                verb: label
                for verb, label in BULK_VERBS.items()
                if self._site.api.may(caller, f"{verb}_many")
            },
        )

    async def search(self, context: ApiContext, request: Request, caller: Caller) -> Response:
        """A job by its whole id at once; by the beginning of any id, among the newest."""
        wanted = request.query_params.get("q", "").strip()
        found: list[Job] = []
        if wanted and len(wanted) <= MAX_ID:
            job = await context.engine.job(wanted)
            if job is not None and caller.may_act_for(job.tenant_id):
                return self._site.to(f"/jobs/{job.job_id}")
            found = await _found(context, caller, wanted)
        if len(found) == 1:
            return self._site.to(f"/jobs/{found[0].job_id}")
        return self._site.page(
            request,
            caller,
            "search.html",
            wanted=wanted,
            searched=SEARCHED,
            jobs=[job_view(job, steps=False) for job in found],
        )

    def operations(self) -> tuple[Operation, ...]:
        add = self._site.operation
        wanted = query_parameter("q", "An id, or how it begins")
        return (
            add("GET", "/jobs", self.jobs, "Jobs", parameters=PARAMETERS),
            add(
                "GET",
                "/jobs/failed",
                self.dead_letters,
                "Dead letters",
                Role.OPERATE,
                parameters=PARAMETERS,
            ),
            add("GET", "/search", self.search, "Find a job", parameters=(wanted,)),
        )


async def _found(context: ApiContext, caller: Caller, wanted: str) -> list[Job]:
    found: list[Job] = []
    if caller.tenants is not None and not caller.tenants:
        return found
    cursor, looked = None, 0
    while looked < SEARCHED and len(found) < PAGE:
        query = JobQuery(tenant_ids=caller.tenants, limit=SEARCH_PAGE, cursor=cursor)
        page = await context.engine.jobs(query)
        found += [job for job in page.jobs if any(i.startswith(wanted) for i in _ids(job))]
        looked, cursor = looked + SEARCH_PAGE, page.next_cursor
        if cursor is None:
            break
    return found[:PAGE]


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
