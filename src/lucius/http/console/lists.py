"""The list of jobs. Filters are in the address, so that a view can be shared."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from lucius.core.ids import digits_in, made_between
from lucius.core.job import Job, JobState
from lucius.http.console.orders import (
    BULK_VERBS,
    PLAN_ORDERS,
    SERVICE_ORDERS,
    base_of,
    curl,
    dict_of,
    filters_of,
    just_given,
    shell,
)
from lucius.http.console.site import Pages, Site
from lucius.http.context import ApiContext, Caller, Role
from lucius.http.listing import JobsQuery
from lucius.http.parameters import MAX_ID, job_for
from lucius.http.problems import Problem
from lucius.http.routing import Context, KnownCaller
from lucius.http.views import job_view
from lucius.ports.ledger import JobQuery

# Finding a job by any id. A caller finds only what is theirs.

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


# Pages that show one answer of the API each: failures, services, protocols.


async def _ordered(done: str = "", service: str = "") -> None:
    """The order that was just given, and to which service."""


async def _done(done: str = "") -> None:
    """The order that was just given."""


class Overviews:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def protocols(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        answer = await self._site.api.ask(request, caller, "list_protocols")
        invalid = context.config.fault() is not None
        return self._site.page(request, caller, "protocols.html", invalid=invalid, **answer)

    async def services(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        return await self._site.pulse.page(self._services(request, caller))

    async def _services(self, request: Request, caller: Caller) -> Response:
        found = await self._site.api.ask(request, caller, "list_services")
        names = [each["service"] for each in found["services"]]
        ordered = request.query_params.get("service")
        return self._site.page(
            request,
            caller,
            "services.html",
            services=[self._service(request, each) for each in found["services"]],
            whole=caller.tenants is None,
            done=just_given(request, SERVICE_ORDERS) if ordered in names else None,
            ordered=ordered,
        )

    def _service(self, request: Request, found: dict[str, Any]) -> dict[str, Any]:
        """With the order that it could take now, in all its forms."""
        verb = "resume" if found["paused"] else "pause"
        base, name = base_of(self._site, request), found["service"]
        url = f"{base}/v1/services/{quote(name, safe='')}:{verb}"
        forms = {
            "shell": shell(base, "service", verb, name),
            "curl": curl(url, {}, signs_in=self._site.signs_in),
        }
        return {**found, "verb": verb, **forms}

    async def failures(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        return await self._site.pulse.page(self._failures(request, caller))

    async def _failures(self, request: Request, caller: Caller) -> Response:
        found = await self._site.api.ask_if_may(request, caller, "list_failures")
        if found is None:
            raise Problem("NOT_SUPPORTED", "this process does not group failures")
        plans = await self._site.api.ask_if_may(request, caller, "list_redrives")
        return self._site.page(
            request,
            caller,
            "failures.html",
            groups=found["groups"],
            plans=plans["plans"] if plans is not None else [],
            done=just_given(request, PLAN_ORDERS),
        )

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/protocols", self.protocols)
        pages.add("GET", "/services", self.services, takes=_ordered)
        pages.add("GET", "/failures", self.failures, takes=_done)


PAGE: Final = 50
FIELDS: Final = ("state", "tenant_id", "request_type", "created_from", "created_to")
"""Filters that have a field of their own. Others come with a link, and are shown and kept."""


async def _listed(asked: Annotated[JobsQuery, Query()]) -> None:
    """As the list of the API."""


class Jobs:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def jobs(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        return await self._site.pulse.page(self._listed(request, caller, "list_jobs"))

    async def dead_letters(
        self, context: Context, request: Request, caller: KnownCaller
    ) -> Response:
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
            besides=_besides(filters),
            query=urlencode(filters, doseq=True),
            states=list(JobState),
            verbs={
                verb: label
                for verb, label in BULK_VERBS.items()
                if self._site.api.may(caller, f"{verb}_many")
            },
        )

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/jobs", self.jobs, takes=_listed)
        pages.add("GET", "/jobs/failed", self.dead_letters, Role.OPERATE, takes=_listed)


def _besides(filters: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        name: [str(each).lower() if each is True else str(each) for each in _several(value)]
        for name, value in filters.items()
        if name not in FIELDS
    }


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
