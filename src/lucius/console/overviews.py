"""Pages that show one answer of the API each: failures, services, protocols."""

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import Caller
from lucius.api.problems import Problem
from lucius.api.routing import Context, KnownCaller
from lucius.console.orders import PLAN_ORDERS, SERVICE_ORDERS, base_of, curl, just_given, shell
from lucius.console.site import Pages, Site


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
