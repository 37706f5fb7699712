"""The pages about the API are rendered once, beside the loop, however often they are asked for."""

import asyncio
import threading
from typing import Any

import pytest
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html

from lucius.api import openapi, pages
from lucius.api.context import ApiOptions
from tests.api.world import World, client_of, context_of


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which pages were rendered."""
    threads: list[str] = []

    def noted(function: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            threads.append(threading.current_thread().name)
            return function(*given, **more)

        return call

    monkeypatch.setattr(openapi, "document", noted(openapi.document))
    monkeypatch.setattr(pages, "get_swagger_ui_html", noted(get_swagger_ui_html))
    monkeypatch.setattr(pages, "get_redoc_html", noted(get_redoc_html))
    return threads


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/redoc"])
async def test_a_page_is_rendered_once(world: World, rendered: list[str], path: str) -> None:
    async with client_of(context_of(world)) as client:
        together = await asyncio.gather(*(client.get(path) for _ in range(5)))
        answers = [*together, await client.get(path)]
    assert len({answer.content for answer in answers}) == 1
    assert {answer.status_code for answer in answers} == {200}
    assert len(rendered) == 1
    assert rendered[0] != threading.main_thread().name


async def test_pages_are_what_they_say(world: World) -> None:
    async with client_of(context_of(world)) as client:
        document = await client.get("/openapi.json")
        assert document.headers["content-type"] == "application/json"
        assert "/v1/jobs" in document.json()["paths"]
        assert "/docs" not in document.json()["paths"]
        for path in ("/docs", "/redoc"):
            page = await client.get(path)
            assert page.headers["content-type"].startswith("text/html")
            assert "/openapi.json" in page.text


async def test_without_docs_there_are_none(world: World) -> None:
    async with client_of(context_of(world, options=ApiOptions(docs=False))) as client:
        for path in ("/openapi.json", "/docs", "/redoc"):
            assert (await client.get(path)).status_code == 404
