"""Plain JSON: what the server said and nothing else, and no model is loaded for it."""

import json

import pytest
from aiohttp import web

from lucius.client import ClientError
from lucius.client.plain import PlainClient
from tests.client.answering import answering


async def test_what_the_server_says_is_handed_on_as_it_is() -> None:
    said = {
        "causes": [{"severity": "STRANGE", "since": "2026-01-31T12:00:00Z", "n": 1.0}],
        "x": None,
    }

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response(said)

    async with answering(handle) as url, PlainClient(url) as client:
        answer = await client.why()
    assert json.dumps(answer) == json.dumps(said)


async def test_what_is_not_json_is_said_so() -> None:
    async def handle(request: web.BaseRequest) -> web.Response:
        return web.Response(text="<html>")

    async with answering(handle) as url, PlainClient(url) as client:
        with pytest.raises(ClientError, match="it is not LUCIUS"):
            await client.why()
