"""The OpenAPI document is rendered once, beside the loop, however often it is asked for."""

import asyncio
import threading
from typing import Any

import pytest

from lucius.http import app, document
from lucius.http.context import ApiOptions
from tests.api.world import World, client_of, context_of

PATH = "/openapi.json"


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which it was rendered."""
    threads: list[str] = []
    completed = document.completed

    def noted(*given: Any, **more: Any) -> Any:
        threads.append(threading.current_thread().name)
        return completed(*given, **more)

    monkeypatch.setattr(app, "completed", noted)
    return threads


async def test_the_document_is_rendered_once(world: World, rendered: list[str]) -> None:
    async with client_of(context_of(world)) as client:
        together = await asyncio.gather(*(client.get(PATH) for _ in range(5)))
        answers = [*together, await client.get(PATH)]
    assert len({answer.content for answer in answers}) == 1
    assert {answer.status_code for answer in answers} == {200}
    assert len(rendered) == 1
    assert rendered[0] != threading.main_thread().name


async def test_the_document_lists_routes_and_no_pages(world: World) -> None:
    async with client_of(context_of(world)) as client:
        document = await client.get(PATH)
    assert document.headers["content-type"] == "application/json"
    assert "/v1/jobs" in document.json()["paths"]
    assert PATH not in document.json()["paths"]


async def test_without_docs_there_is_none(world: World) -> None:
    async with client_of(context_of(world, options=ApiOptions(docs=False))) as client:
        assert (await client.get(PATH)).status_code == 404
