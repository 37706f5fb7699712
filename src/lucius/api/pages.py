"""The pages about the API itself: its OpenAPI document, and two that show it in a browser. Rendered once."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import orjson
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller
from lucius.api.operation import JSON, Answer, Handler, Operation

DOCUMENT: Final = "/openapi.json"
_HTML: Final = "text/html; charset=utf-8"


def pages(openapi: Callable[[], dict[str, Any]]) -> tuple[Operation, ...]:
    def document() -> bytes:
        return orjson.dumps(openapi())

    def swagger() -> bytes:
        return bytes(get_swagger_ui_html(openapi_url=DOCUMENT, title="LUCIUS").body)

    def redoc() -> bytes:
        return bytes(get_redoc_html(openapi_url=DOCUMENT, title="LUCIUS").body)

    return (
        _page(DOCUMENT, JSON, document),
        _page("/docs", _HTML, swagger),
        _page("/redoc", _HTML, redoc),
    )


def _page(path: str, media: str, render: Callable[[], bytes]) -> Operation:
    about = render.__name__
    answers = {200: Answer(about, media=media)}
    return Operation(
        "GET", path, _handler(render, media), about, "pages", None, answers, hidden=True
    )


def _handler(render: Callable[[], bytes], media: str) -> Handler:
    """Rendering takes a while, so it is done beside the loop, and whoever asks meanwhile waits for it."""
    made: asyncio.Task[bytes] | None = None

    async def page(context: ApiContext, request: Request, caller: Caller) -> Response:
        nonlocal made
        made = made or asyncio.create_task(asyncio.to_thread(render))
        return Response(await asyncio.shield(made), headers={"content-type": media})

    return page
