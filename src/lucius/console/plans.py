"""Redrive plans: counted and given from a group of failures, watched and stopped on the page of failures."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import Role
from lucius.api.problems import Problem
from lucius.api.routing import Context, KnownCaller
from lucius.console.orders import base_of, curl, form_of, said, shell
from lucius.console.site import Pages, Site

MAX_NUMBER: Final = 15
"""Characters: JSON has no room for many more digits."""
DEFAULTS: Final = {"canary": "5", "rate": "10", "stop_after": "10%"}


async def _asked(group: str = "") -> None:
    """The group of failures."""


class Plans:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def confirm_plan(
        self, context: Context, request: Request, caller: KnownCaller
    ) -> Response:
        """How many jobs the plan would take, before anyone starts it."""
        group = request.query_params.get("group", "")
        found = await self._site.api.ask(
            request, caller, "get_failure_group", path={"group": group}
        )
        filters = {"group": group}
        counted = await self._site.api.ask(
            request, caller, "redrive_many", body={"filter": filters, "dry_run": True}
        )
        base = base_of(self._site, request)
        words = (
            "redrive",
            "--group",
            group,
            "--canary",
            "5",
            "--rate",
            "10/s",
            "--stop-after",
            "10%",
        )
        return self._site.page(
            request,
            caller,
            "plan.html",
            group=found,
            matched=counted["matched"],
            defaults=DEFAULTS,
            shell=shell(base, *words),
            curl=curl(f"{base}/v1/redrives", {"filter": filters}, signs_in=self._site.signs_in),
        )

    async def start_plan(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        fields = await form_of(self._site, request)
        given = {name: fields.get(name, [text])[0] for name, text in DEFAULTS.items()}
        body: dict[str, Any] = {
            **said(fields),
            "filter": {"group": fields.get("group", [""])[0]},
            "canary": number_in(given["canary"]),
            "rate": number_in(given["rate"]),
            "stop_after": given["stop_after"],
        }
        await self._site.api.ask(request, caller, "start_redrive", body=body)
        return self._site.to("/failures", done="redrive")

    async def stop_plan(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        await form_of(self._site, request)
        path = {"planId": request.path_params["planId"]}
        await self._site.api.ask(request, caller, "stop_redrive", path=path, body={})
        return self._site.to("/failures", done="stop")

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/failures/redrive", self.confirm_plan, Role.OPERATE, takes=_asked)
        pages.add("POST", "/failures/redrive", self.start_plan, Role.OPERATE)
        pages.add("POST", "/redrives/{planId}/stop", self.stop_plan, Role.OPERATE)


def number_in(text: str) -> int | float:
    try:
        if len(text) <= MAX_NUMBER:
            return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        pass
    raise Problem("INVALID_BODY", f"{text[:32]!r} is no number that a plan takes")
