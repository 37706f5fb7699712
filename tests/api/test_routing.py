"""There is one way from a request to its route, and each route is found by it."""

import re
from functools import cache
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.routing import Match

from lucius.http.app import ROUTES, create_app, routes_in
from lucius.http.context import ApiOptions
from lucius.http.routing import ApiRoute
from tests.api.world import World, client_of, context_of


@cache
def app() -> FastAPI:
    return create_app(context_of(World()))


def found(method: str, path: str) -> tuple[str, dict[str, Any]] | None:
    """The name of the first route that takes the request, and the parameters of its path."""
    scope = {"type": "http", "method": method, "path": path, "root_path": ""}
    for route in routes_in(app().routes):
        match, child = route.matches(scope)
        if match is Match.FULL:
            return str(route.operation_id), child["path_params"]
    return None


@pytest.mark.parametrize(
    ("method", "path", "name", "parameters"),
    [
        ("GET", "/v1/jobs", "list_jobs", {}),
        ("POST", "/v1/jobs/a:cancel", "cancel", {"jobId": "a"}),
        ("POST", "/v1/jobs/a:b:cancel", "cancel", {"jobId": "a:b"}),
        ("GET", "/v1/jobs/a:cancel", "get_job", {"jobId": "a:cancel"}),
        ("GET", "/v1/jobs/a.b", "get_job", {"jobId": "a.b"}),
    ],
)
def test_the_first_route_that_fits_path_and_method_is_taken(
    method: str, path: str, name: str, parameters: dict[str, str]
) -> None:
    assert found(method, path) == (name, parameters)


@pytest.mark.parametrize(
    ("method", "path", "code", "allow"),
    [
        ("GET", "/", "NOT_FOUND", None),
        ("GET", "/v1/jobs/", "NOT_FOUND", None),
        ("GET", "/v1/jobs/a/b", "NOT_FOUND", None),
        ("GET", "/v1/jobsX", "NOT_FOUND", None),
        ("HEAD", "/v1/jobs", "METHOD_NOT_ALLOWED", "GET"),
        ("OPTIONS", "/v1/jobs", "METHOD_NOT_ALLOWED", "GET"),
        ("PUT", "/v1/jobs/a:cancel", "METHOD_NOT_ALLOWED", "POST"),
        ("POST", "/v1/jobs/a", "METHOD_NOT_ALLOWED", "GET"),
        ("DELETE", "/v1/redrives", "METHOD_NOT_ALLOWED", "POST, GET"),
    ],
)
async def test_what_no_route_takes_is_a_problem(
    world: World, method: str, path: str, code: str, allow: str | None
) -> None:
    async with client_of(context_of(world)) as client:
        answer = await client.request(method, path)
    if method != "HEAD":
        assert answer.json()["code"] == code
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers.get("allow") == allow


@pytest.mark.parametrize("path", ["/healthz", "/lucius/healthz"])
async def test_a_proxy_may_take_its_path_away_or_not(world: World, path: str) -> None:
    context = context_of(world, options=ApiOptions(root_path="/lucius"))
    async with client_of(context) as client:
        assert (await client.get(path)).status_code == 200
        assert (await client.get(f"/luciusX{path}")).status_code == 404


@pytest.mark.parametrize("route", ROUTES, ids=lambda each: each.operation_id)
def test_every_route_is_found_and_documented(route: ApiRoute) -> None:
    names = re.findall(r"{(\w+)}", route.path)
    path = re.sub(r"{\w+}", "x", route.path)
    assert found(route.method, path) == (route.operation_id, dict.fromkeys(names, "x"))
    about = app().openapi()["paths"][route.path][route.method.lower()]
    assert about["operationId"] == route.operation_id


async def test_a_route_that_does_not_say_who_may_call_it_cannot_be_made() -> None:
    async def open_to_all(request: Request) -> None: ...

    with pytest.raises(TypeError, match="who may call it"):
        ApiRoute("/x", open_to_all)
