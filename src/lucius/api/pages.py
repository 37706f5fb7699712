"""The pages about the API itself: its OpenAPI document, and two that show it in a browser. Rendered once."""

from collections.abc import Callable
from functools import cache
from typing import Final

import orjson
from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller
from lucius.api.operation import JSON, Answer, Handler, Operation

DOCUMENT: Final = "/openapi.json"
_HTML: Final = "text/html; charset=utf-8"


def pages(app: FastAPI) -> tuple[Operation, ...]:
    def document() -> bytes:
        return orjson.dumps(app.openapi())

    def swagger() -> bytes:
        return bytes(get_swagger_ui_html(openapi_url=DOCUMENT, title=app.title).body)

    def redoc() -> bytes:
        return bytes(get_redoc_html(openapi_url=DOCUMENT, title=app.title).body)

    return (
        _page(DOCUMENT, JSON, document),
        _page("/docs", _HTML, swagger),
        _page("/redoc", _HTML, redoc),
    )


def _page(path: str, media: str, render: Callable[[], bytes]) -> Operation:
    summary = render.__name__
    return Operation(
        "GET",
        path,
        _handler(cache(render), media),
        summary,
        "pages",
        None,
        {200: Answer(summary, media=media)},
        hidden=True,
    )


def _handler(content: Callable[[], bytes], media: str) -> Handler:
    async def page(context: ApiContext, request: Request, caller: Caller) -> Response:
        return Response(content(), headers={"content-type": media})

    return page
