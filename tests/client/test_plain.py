"""Plain JSON: what the server said and nothing else, and no model is loaded for it."""

import ast
import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from aiohttp import web

import lucius.client
from lucius.client import ClientError, models
from lucius.client.plain import PlainClient
from tests.cli.server import running
from tests.client.answering import answering

SCRIPT = """
import asyncio, sys
from lucius.client.plain import PlainClient

async def asked():
    async with PlainClient(sys.argv[1]) as client:
        print((await client.jobs())["jobs"])

asyncio.run(asked())
print("pydantic" in sys.modules)
"""


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


def test_it_reads_answers_without_models() -> None:
    with running() as server:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, server.url], capture_output=True, text=True, check=True
        )
    assert done.stdout == "[]\nFalse\n"


def test_every_model_that_a_type_checker_sees_is_there() -> None:
    assert models.__file__ is not None
    tree = ast.parse(Path(models.__file__).read_text("utf-8"))
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert len(seen) > 20
    assert {getattr(models, name).__name__ for name in seen} == seen
    assert lucius.client.Command is models.Command
    for module in (models, lucius.client):
        with pytest.raises(AttributeError, match="no attribute NoView"):
            _ = module.NoView


async def test_the_command_line_prints_what_the_server_says() -> None:
    """Also what it does not know."""
    said = {"causes": [], "forecast": {"at": "2026-01-31T12:00:00Z", "sure": 1.0}}

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response(said)

    async with answering(handle) as url:
        words = ("-m", "lucius", "why", "--json", "--url", url)
        asked = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE)
        printed, _ = await asked.communicate()
    assert asked.returncode == 0
    assert json.loads(printed) == said
