"""There is one way from a request to its operation, and each operation is found by it."""

import re

import pytest
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.app import OPERATIONS, create_app
from lucius.api.operation import Operation
from lucius.api.problems import Problem
from lucius.api.route_table import RouteTable
from tests.api.world import World, context_of


async def first(request: Request) -> Response:
    return Response()


async def second(request: Request) -> Response:
    return Response()


def table() -> RouteTable:
    table = RouteTable()
    table.add("GET", "/jobs", first)
    table.add("POST", "/jobs/{jobId}:cancel", first)
    table.add("GET", "/jobs/{jobId}", second)
    return table


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/jobs", (first, {})),
        ("POST", "/jobs/a:cancel", (first, {"jobId": "a"})),
        ("POST", "/jobs/a:b:cancel", (first, {"jobId": "a:b"})),
        ("GET", "/jobs/a:cancel", (second, {"jobId": "a:cancel"})),
        ("GET", "/jobs/a.b", (second, {"jobId": "a.b"})),
    ],
)
def test_the_first_route_that_fits_path_and_method_is_taken(
    method: str, path: str, found: object
) -> None:
    assert table().find(method, path) == found


@pytest.mark.parametrize(
    ("method", "path", "code", "allow"),
    [
        ("GET", "/", "NOT_FOUND", None),
        ("GET", "/jobs/", "NOT_FOUND", None),
        ("GET", "/jobs/a/b", "NOT_FOUND", None),
        ("GET", "/jobsX", "NOT_FOUND", None),
        ("HEAD", "/jobs", "METHOD_NOT_ALLOWED", "GET"),
        ("PUT", "/jobs/a:cancel", "METHOD_NOT_ALLOWED", "POST"),
        ("POST", "/jobs/a", "METHOD_NOT_ALLOWED", "GET"),
    ],
)
def test_what_no_route_takes_is_a_problem(
    method: str, path: str, code: str, allow: str | None
) -> None:
    with pytest.raises(Problem) as raised:
        table().find(method, path)
    assert raised.value.known.code == code
    assert raised.value.headers.get("allow") == allow


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.operation_id)
def test_every_operation_is_found_and_documented(operation: Operation) -> None:
    names = re.findall(r"{(\w+)}", operation.path)
    path = re.sub(r"{\w+}", "x", operation.path)
    table = RouteTable()
    for each in OPERATIONS:
        table.add(each.method, each.path, first if each is operation else second)
    assert table.find(operation.method, path) == (first, dict.fromkeys(names, "x"))
    document = create_app(context_of(World())).openapi()
    about = document["paths"][operation.path][operation.method.lower()]
    assert about["operationId"] == operation.operation_id
