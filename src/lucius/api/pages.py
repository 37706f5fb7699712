"""The OpenAPI document of the running server and the AsyncAPI document of its bus, made beside the loop."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from lucius.api import asyncapi
from lucius.api.context import ApiOptions
from lucius.api.operation import Answer, Handler, Operation
from lucius.api.routing import JSON, Context, KnownCaller

DOCUMENT: Final = "/openapi.json"
BUS_DOCUMENT: Final = "/asyncapi.json"


def pages(openapi: Callable[[], dict[str, Any]], options: ApiOptions) -> tuple[Operation, ...]:
    def bus() -> dict[str, Any]:
        return asyncapi.document(options.topology, options.topic_prefix)

    return (
        _page(DOCUMENT, openapi, "The API as an OpenAPI document"),
        _page(BUS_DOCUMENT, bus, "The bus as an AsyncAPI document"),
    )


def _page(path: str, document: Callable[[], dict[str, Any]], about: str) -> Operation:
    handler = rendered_once(lambda request: orjson.dumps(document()), {"content-type": JSON})
    answers = {200: Answer("The document", media=JSON)}
    return Operation("GET", path, handler, about, "pages", None, answers, hidden=True)


def rendered_once(render: Callable[[Request], bytes], headers: dict[str, str]) -> Handler:
    """Rendering takes a while, so it is done beside the loop, and whoever asks meanwhile waits for it."""
    made: asyncio.Task[bytes] | None = None

    async def page(context: Context, request: Request, caller: KnownCaller) -> Response:
        nonlocal made
        made = made or asyncio.create_task(asyncio.to_thread(render, request))
        return Response(await asyncio.shield(made), headers=headers)

    return page
