"""The documents of the running server: its API and its bus. Each is rendered once, beside the loop."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from lucius.api import asyncapi
from lucius.api.context import ApiOptions
from lucius.api.routing import JSON, ApiRoute, needs

DOCUMENT: Final = "/openapi.json"
BUS_DOCUMENT: Final = "/asyncapi.json"


def pages(openapi: Callable[[], dict[str, Any]], options: ApiOptions) -> APIRouter:
    router = APIRouter(
        route_class=ApiRoute,
        tags=["pages"],
        dependencies=[needs(None)],
        include_in_schema=False,
    )
    api = RenderedOnce(openapi)
    bus = RenderedOnce(lambda: asyncapi.document(options.topology, options.topic_prefix))

    @router.get(DOCUMENT)
    async def api_document() -> Response:
        return Response(await api(), media_type=JSON)

    @router.get(BUS_DOCUMENT)
    async def bus_document() -> Response:
        return Response(await bus(), media_type=JSON)

    return router


class RenderedOnce:
    """Rendering takes a while, so it is done beside the loop, and whoever asks meanwhile waits for it."""

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self._document = document
        self._made: asyncio.Task[bytes] | None = None

    async def __call__(self) -> bytes:
        self._made = self._made or asyncio.create_task(asyncio.to_thread(self._render))
        return await asyncio.shield(self._made)

    def _render(self) -> bytes:
        return orjson.dumps(self._document())
