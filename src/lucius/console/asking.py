"""The console's way to the API: the same routes, asked inside the process, as whoever is signed in."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.types import Message

from lucius.api.context import ApiContext, Caller
from lucius.api.document import body_of
from lucius.api.problems import Problem
from lucius.api.routing import ApiRoute

_JSON_BODY: Final = [(b"content-type", b"application/json")]


class Api:
    """What a caller may not ask over HTTP, nobody may ask for them here: roles and tenants are checked."""

    def __init__(self, context: ApiContext, routes: Sequence[ApiRoute]) -> None:
        self._context = context
        self._routes = {route.operation_id: route for route in routes}

    def may(self, caller: Caller, name: str) -> bool:
        route = self._routes.get(name)
        if route is None or not route.access.is_open_to(caller):
            return False
        return caller.tenants is None or not route.access.every_tenant

    def takes(self, name: str, field: str) -> bool:
        """Whether the body of a route has such a field."""
        route = self._routes.get(name)
        body = body_of(route) if route is not None else None
        return body is not None and field in body.model_fields

    async def ask_if_may(
        self, request: Request, caller: Caller, name: str, path: Mapping[str, str] | None = None
    ) -> Any:
        """None where the caller may not know, or this process does not."""
        if not self.may(caller, name):
            return None
        try:
            return await self.ask(request, caller, name, path=path)
        except Problem as problem:
            if problem.known.code == "NOT_SUPPORTED":
                return None
            raise

    async def ask(
        self,
        request: Request,
        caller: Caller,
        name: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """What the route answers. Raises what it raises."""
        if not self.may(caller, name):
            raise Problem("FORBIDDEN", f"this is not for the roles and tenants of {caller.name}")
        route = self._routes[name]
        content = b"" if body is None else orjson.dumps(body)

        async def receive() -> Message:
            return {"type": "http.request", "body": content, "more_body": False}

        scope = {
            **request.scope,
            "method": route.method,
            "path_params": dict(path or {}),
            "query_string": urlencode(query or {}, doseq=True).encode(),
            "headers": _JSON_BODY,
        }
        return await route.answer_inside(Request(scope, receive), self._context, caller)
