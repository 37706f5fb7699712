"""A query parameter that a route does not have, or that is given twice, is refused by its name."""

from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lucius.client import Client, ProblemError
from lucius.http.app import ROUTES
from lucius.http.context import Caller
from lucius.http.listing import JobsQuery
from lucius.http.problems import Problem
from lucius.http.routing import ApiRoute
from tests.api.world import ENVELOPE, TOKENS, World, client_of, context_of, document
from tests.client.answering import answering, through

QUERIED = [
    (route, parameter)
    for route in ROUTES
    for parameter in document()["paths"][route.path][route.method.lower()].get("parameters", ())
    if parameter["in"] == "query"
]
INSTANT = "2026-01-01T00:00:00Z"
SAMPLES = {"integer": "1", "number": "0", "boolean": "false"}
TOKEN = TOKENS.mint("tenant_a", "job_0", "ocr", 1, "lease_1")
HEADERS = {"authorization": f"Bearer {TOKEN}"}


def path_of(route: ApiRoute) -> str:
    return route.path.replace("{jobId}", "job_0").replace("{service}", "ocr")


async def refusal(client: httpx.AsyncClient, route: ApiRoute, query: str) -> Any:
    body: dict[str, Any] | None = {} if route.method == "POST" else None
    path = f"{path_of(route)}?{query}"
    answer = await client.request(route.method, path, json=body, headers=HEADERS)
    return answer.status_code, answer.json().get("code"), answer.json().get("errors")


@pytest.mark.parametrize("route", ROUTES, ids=lambda each: f"{each.method} {each.path}")
async def test_a_parameter_that_does_not_exist_is_refused(
    client: httpx.AsyncClient, route: ApiRoute
) -> None:
    known = [each["name"] for other, each in QUERIED if other is route]
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    detail = f"this route has no such parameter; {takes}"
    for query in ("tenent_id=a", "tenent_id", "tenent_id=", "%74enent_id=a"):
        status, code, errors = await refusal(client, route, query)
        assert (status, code) == (422, "UNKNOWN_PARAMETER")
        assert errors == [{"parameter": "tenent_id", "detail": detail}]


@pytest.mark.parametrize(
    ("route", "parameter"), QUERIED, ids=lambda each: getattr(each, "path", None)
)
async def test_a_parameter_is_given_once_unless_it_is_a_list(
    client: httpx.AsyncClient, route: ApiRoute, parameter: dict[str, Any]
) -> None:
    sample = SAMPLES.get(parameter["schema"].get("type"), "DEFAULT")
    if parameter["name"] == "state":
        sample = "SUCCEEDED"
    pair = f"{parameter['name']}={sample}"
    status, code, errors = await refusal(client, route, f"{pair}&{pair}")
    if parameter["schema"].get("type") == "array":
        assert status == 200
    else:
        detail = "must be given once, not 2 times"
        assert (status, code) == (422, "INVALID_PARAMETER")
        assert errors == [{"parameter": parameter["name"], "detail": detail}]


async def nobody(request: Request) -> Caller:
    raise Problem("UNAUTHENTICATED")


async def test_who_may_not_ask_is_told_nothing_about_parameters(world: World) -> None:
    async with client_of(context_of(world, authenticate=nobody)) as client:
        assert (await client.get("/v1/jobs?nope=1")).status_code == 401


async def test_the_client_asks_only_for_what_there_is(world: World) -> None:
    """Each of its methods that reads, with all that it can ask for; and a slip in a filter shows."""
    context = context_of(world)
    job_id = (await world.submit(ENVELOPE)).job_id
    names = list(JobsQuery.model_fields)
    given: dict[str, str | int] = {
        "limit": 3,
        "state": "QUEUED",
        "created_from": INSTANT,
        "created_to": INSTANT,
        "live": "true",
        "stuck": "true",
    }
    filters = {name: given.get(name, "a") for name in names if name != "cursor"}
    async with (
        client_of(context) as http,
        answering(through(http)) as url,
        Client(url) as lucius,
    ):
        await lucius.job(job_id, wait_seconds=0.01)
        await lucius.jobs(**filters)
        await lucius.dlq(**filters)
        await lucius.events(job_id, after=0, limit=5)
        with pytest.raises(ProblemError) as refused:
            await lucius.jobs(tenant="a")
    assert refused.value.code == "UNKNOWN_PARAMETER"
