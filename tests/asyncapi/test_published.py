"""A server publishes the document of its own bus, and the docs have it as a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from lucius.http import asyncapi
from lucius.http.context import ApiOptions
from tests.api.live import live
from tests.api.world import World, client_of, context_of

PATH = "/asyncapi.json"
FILE = Path(__file__).parents[2] / "docs/reference/asyncapi.json"


async def test_anyone_reads_it(tmp_path: Path) -> None:
    async with live(tmp_path, lane_topology="isolated") as lucius:
        answer = await lucius.client.get(PATH)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == asyncapi.document("isolated")


@pytest.mark.parametrize(
    ("options", "status", "address"),
    [
        (ApiOptions(topic_prefix="test-"), 200, "test-global-bus-p{lane}"),
        (ApiOptions(docs=False), 404, None),
    ],
)
async def test_it_follows_the_settings(options: ApiOptions, status: int, address: Any) -> None:
    async with client_of(context_of(World(), options=options)) as client:
        answer = await client.get(PATH)
    assert answer.status_code == status
    assert answer.json().get("channels", {}).get("directives", {}).get("address") == address


def test_the_docs_have_it() -> None:
    assert json.loads(FILE.read_text("utf-8")) == asyncapi.document()
