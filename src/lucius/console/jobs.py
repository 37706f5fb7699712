"""The list of jobs. Filters are in the address, so that a view can be shared."""

from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import Caller, Role
from lucius.api.listing import JobsQuery
from lucius.api.routing import Context, KnownCaller
from lucius.console.orders import BULK_VERBS, dict_of, filters_of
from lucius.console.site import Pages, Site
from lucius.core.states import JobState

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
