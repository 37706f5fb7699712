"""What is published is enforced: whatever the document forbids of a body or a parameter is refused."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import httpx
import jsonschema_rs
import pytest

from lucius.api.app import ROUTES, create_app
from lucius.api.routing import ApiRoute
from tests.api.world import World, accepted, bearer, client_of, context_of

DOCUMENT: dict[str, Any] = create_app(context_of(World())).openapi()
COMPONENTS = {"components": DOCUMENT["components"]}
WRONG: list[Any] = [
    *(None, True, 7, -1, 0, 1.5, 10**12, "", " ", "x", "x" * 3000),
    *([], {}, [7], ["x"] * 300, {"x": 1}),
]
"""Some of these are wrong anywhere. Where each is, the schema says."""
WRONG_TEXTS = {
    "integer": ("x", "", "1.5", "1_0", " 1", "-1", "9" * 17, "9" * 30),
    "number": ("x", "", "-1", "61", "nan", "inf", "1_0", " 1"),
    "boolean": ("maybe", "", "2"),
    "array": ("", ",", " ,"),
}
FORBIDDEN_WORD = "no such word"


class Forbidden(NamedTuple):
    """One request that the document forbids, and the place that its refusal must name."""

    route: ApiRoute
    place: str
    value: Any
    body: Any = None


def about(route: ApiRoute) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
    return found


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def places(
    schema: dict[str, Any], value: Any, at: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Of every property that objects of this schema have, down to those of objects in the example."""
    for name, rule in resolved(schema).get("properties", {}).items():
        yield (*at, name)
        inner = value.get(name) if isinstance(value, dict) else None
        if isinstance(inner, dict):
            yield from places(rule, inner, (*at, name))


def changed(body: Any, place: tuple[str, ...], value: Any) -> Any:
    made = deepcopy(body)
    inner = made
    for name in place[:-1]:
        inner = inner[name]
    if value is ...:
        inner.pop(place[-1], None)
    else:
        inner[place[-1]] = value
    return made


def of_bodies() -> Iterator[Forbidden]:
    for route in ROUTES:
        content = about(route).get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        valid = jsonschema_rs.Draft202012Validator({**content["schema"], **COMPONENTS}).is_valid
        assert valid(content["example"])
        for place in places(content["schema"], content["example"]):
            for value in (..., *WRONG):
                body = changed(content["example"], place, value)
                if not valid(body):
                    yield Forbidden(route, "/" + "/".join(place), value, body)


def of_parameters() -> Iterator[Forbidden]:
    for route in ROUTES:
        for parameter in about(route).get("parameters", ()):
            schema = resolved(parameter["schema"])
            if parameter["in"] == "path":
                continue
            texts = WRONG_TEXTS.get(schema.get("type", ""), ())
            narrow = schema.get("items", schema).keys() & {"enum", "format"}
            narrow |= {"pattern"} if "SUCCEEDED" in str(schema.get("items")) else set()
            for text in (*texts, *([FORBIDDEN_WORD] if narrow else [])):
                yield Forbidden(route, parameter["name"], text)


BODIES, PARAMETERS = list(of_bodies()), list(of_parameters())


def shown(each: Any) -> str:
    return f"{each.route.operation_id} {each.place} {str(each.value)[:20]!r}"


async def asked(client: httpx.AsyncClient, each: Forbidden, token: str) -> httpx.Response:
    path = each.route.path.replace("{service}", "ocr-service").replace("{jobId}", "job_0")
    path = path.replace("{planId}", "plan_0").replace("{group}", "f0")
    headers = {"authorization": token} if each.route.access.callback_token else {}
    if each.body is not None:
        return await client.request(each.route.method, path, json=each.body, headers=headers)
    given = next(p for p in about(each.route)["parameters"] if p["name"] == each.place)
    if given["in"] == "header":
        return await client.request(each.route.method, path, headers={each.place: each.value})
    body = about(each.route).get("requestBody", {}).get("content", {}).get("application/json", {})
    return await client.request(
        each.route.method,
        path,
        params={each.place: each.value},
        json=body.get("example"),
        headers=headers,
    )


def named_places(answer: httpx.Response) -> list[str]:
    errors = answer.json().get("errors", ())
    return [fault.get("pointer", fault.get("parameter")) for fault in errors]


def is_named(each: Forbidden, found: list[str]) -> bool:
    """The place, one inside of it, or the object that lacks it."""
    lacks = each.value is ... and each.place.rpartition("/")[0] in found
    return lacks or any(at == each.place or at.startswith(f"{each.place}/") for at in found)


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if about(route).get("requestBody")], ids=lambda r: r.name
)
async def test_a_body_that_the_document_forbids_is_refused_by_its_place(route: ApiRoute) -> None:
    world = World()
    let_through: list[str] = []
    async with client_of(context_of(world)) as client:
        token = bearer(await world.out(await accepted(client)))["authorization"]
        for each in BODIES:
            if each.route is not route:
                continue
            answer = await asked(client, each, token)
            refused = answer.status_code == 422 and is_named(each, named_places(answer))
            if not refused:
                let_through.append(f"{shown(each)}: {answer.status_code} {answer.text[:300]}")
    assert not let_through


@pytest.mark.parametrize("each", PARAMETERS, ids=shown)
async def test_a_parameter_that_the_document_forbids_is_refused_by_its_name(
    each: Forbidden,
) -> None:
    world = World()
    async with client_of(context_of(world)) as client:
        await accepted(client)
        answer = await asked(client, each, "")
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_PARAMETER"), answer.text
    assert each.place in named_places(answer)


def test_every_body_and_parameter_is_looked_at() -> None:
    posts = {route.name for route in ROUTES if about(route).get("requestBody")}
    assert posts - {each.route.name for each in BODIES} == {"retry_outbox"}  # it takes anything
    assert len(BODIES) > 500
    assert len(PARAMETERS) > 80
