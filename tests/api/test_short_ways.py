"""Routes that are found without a search: the right ones, and no path that FastAPI would take elsewhere."""

from typing import Any

import pytest
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from lucius.http.app import ROUTES, ShortWays, routes_in
from lucius.http.context import Role
from lucius.http.routing import ShortRoute, needs


async def endpoint(context: Any, request: Request, caller: Any) -> Response:
    return Response()


def found(ways: ShortWays, method: str, path: str) -> tuple[bool, dict[str, str]]:
    scope: dict[str, Any] = {"method": method, "path": path}
    return ways.find(scope) is not None, scope.get("path_params", {})


@pytest.mark.parametrize("job_id", ["job_1", "a:b", "%2F", "{jobId}"])
def test_the_id_of_a_job_is_the_last_part_of_the_path(job_id: str) -> None:
    assert found(ShortWays(ROUTES), "GET", f"/v1/jobs/{job_id}") == (True, {"jobId": job_id})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/"),
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/a/events"),
        ("POST", "/v1/jobs/a"),
        ("GET", "/proxy/v1/jobs/a"),
        ("GET", "/v1/orchestrate"),
        ("GET", ""),
    ],
)
def test_any_other_path_is_left_to_fastapi(method: str, path: str) -> None:
    assert found(ShortWays(ROUTES), method, path) == (False, {})


def test_a_route_beside_another_is_not_taken_for_it() -> None:
    router = APIRouter(route_class=ShortRoute, dependencies=[needs(Role.READ)])
    router.add_api_route("/v1/things/{thing}", endpoint, methods=["GET"], name="thing")
    alone = ShortWays(routes_in(router.routes))
    assert found(alone, "GET", "/v1/things/count")[0]
    router.add_api_route("/v1/things/count", endpoint, methods=["GET"], name="count")
    both = ShortWays(routes_in(router.routes))
    assert found(both, "GET", "/v1/things/a") == (False, {})
