"""The OpenAPI document and the error pages list what there is."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lucius.contract.codes import CODES
from lucius.http.app import ROUTES
from lucius.http.context import ANYONE, Caller
from tests.api.conforming import models_of
from tests.api.world import World, client_of, context_of

SOURCE = Path(__file__).parents[2] / "src" / "lucius"
RAISED = re.compile(r'(?:RequestError|Problem|_refused|rejected)\(\s*(?:turn\.job, )?"([A-Z_]+)"')
INTERNAL = {"NOT_RELEASABLE"}
"""Answers of the core to its own engine."""


async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get("/openapi.json")).json()
    return answer


async def test_every_operation_is_documented_with_all_its_answers(
    client: httpx.AsyncClient,
) -> None:
    paths = (await document(client))["paths"]
    for route in ROUTES:
        documented = paths[route.path][route.method.lower()]
        statuses = {str(status) for status in models_of(route)}
        statuses |= {str(known.status) for known in route.codes}
        assert statuses <= set(documented["responses"])
        assert documented["summary"]
        names = re.findall(r"{(\w+)}", route.path)
        assert names == [p["name"] for p in documented.get("parameters", []) if p["in"] == "path"]
        assert ("requestBody" in documented) == (route.method == "POST")


@pytest.mark.parametrize("guarded", [True, False])
async def test_credentials_are_documented_where_they_are_needed(
    world: World, guarded: bool
) -> None:
    async def authenticate(request: Request) -> Caller:
        return ANYONE

    context = context_of(world, authenticate=authenticate if guarded else None)
    async with client_of(context) as client:
        paths = (await document(client))["paths"]
    for route in ROUTES:
        documented = paths[route.path][route.method.lower()].get("security")
        if route.access.callback_token:
            assert documented == [{"callback_token": []}]
        else:
            assert (documented == [{"caller": []}]) == (guarded and route.access.role is not None)


async def test_every_reference_in_the_document_leads_somewhere(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json")
    schemas = answer.json()["components"]["schemas"]
    names = set(re.findall(r"#/components/schemas/(\w+)", answer.text))
    assert names
    assert names <= set(schemas)


async def test_the_old_name_of_orchestrate_is_marked_deprecated(client: httpx.AsyncClient) -> None:
    paths = (await document(client))["paths"]
    assert paths["/v1/commands"]["post"]["deprecated"] is True
    assert "deprecated" not in paths["/v1/orchestrate"]["post"]


def test_every_code_that_is_raised_is_registered() -> None:
    raised = {
        code for path in SOURCE.rglob("*.py") for code in RAISED.findall(path.read_text("utf-8"))
    }
    assert len(raised) > 20
    assert raised - INTERNAL <= set(CODES)
