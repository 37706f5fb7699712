"""Pages that show one answer of the API each: failures, services, protocols."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller, Role
from lucius.api.operation import Operation
from lucius.console.site import Site


class Overviews:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def protocols(self, context: ApiContext, request: Request, caller: Caller) -> Response:
        answer = await self._site.api.ask(request, caller, "list_protocols")
        invalid = context.config.fault() is not None
        return self._site.page(request, caller, "protocols.html", invalid=invalid, **answer)

    async def services(self, context: ApiContext, request: Request, caller: Caller) -> Response:
        with self._site.pulse.rendering():
            rows = await self._services(request, caller)
            return self._site.page(request, caller, "services.html", services=rows)

    async def _services(self, request: Request, caller: Caller) -> list[dict[str, Any]]:
        """Every service that a protocol names, with what waits and runs there for whoever may know."""
        api = self._site.api
        protocols = await api.ask(request, caller, "list_protocols")
        found: dict[str, dict[str, Any]] = {}
        for protocol in protocols["protocols"]:
            for step in protocol["steps"]:
                row = found.setdefault(
                    step["service"], {"name": step["service"], "steps": set(), "protocols": set()}
                )
                row["steps"].add(step["step_type"])
                row["protocols"].add(protocol["protocol_id"])
        if api.may(caller, "get_backlog"):
            backlog = (await api.ask(request, caller, "get_backlog"))["backlog"]
            for row in found.values():
                mine = [each for each in backlog if each["service"] == row["name"]]
                names = ("held", "released", "in_progress")
                row["backlog"] = {name: sum(each[name] for each in mine) for name in names}
        return [found[name] for name in sorted(found)]

    def operations(self) -> tuple[Operation, ...]:
        add = self._site.operation
        return (
            add("GET", "/protocols", self.protocols, "Protocols in force", Role.READ),
            add("GET", "/services", self.services, "Services", Role.READ),
        )
