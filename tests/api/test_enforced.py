"""What is published is enforced: whatever the document forbids of a body or a parameter is refused."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import httpx
import jsonschema_rs
import pytest
from fastapi.routing import APIRoute

from lucius.contract.models.base import example_of
from lucius.http.app import ROUTES
from lucius.http.document import body_of as model_of_body
from lucius.http.invoker import invoker_app
from lucius.http.invoker import router as invoker
from tests.api.world import World, accepted, bearer, client_of, context_of, document

DOCUMENT: dict[str, Any] = document()
"""`lucius up` and `lucius orchestrator` serve the same app."""
INVOKER_DOCUMENT: dict[str, Any] = invoker_app(None).openapi()  # type: ignore[arg-type]
"""There is none behind it: what is refused does not get so far."""
OF_INVOKER = [route for route in invoker.routes if isinstance(route, APIRoute)]
ALL: list[APIRoute] = [*ROUTES, *OF_INVOKER]
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
FORBIDDEN_TEXTS = ("", "x" * 3000)
COUNTS_AS = {"Idempotency-Key": "/idempotency_key", "X-Correlation-Id": "/correlation_id"}
"""Headers that stand for a field of the command: the refusal points there."""


class Forbidden(NamedTuple):
    """One request that the document forbids, and the place that its refusal must name."""

    route: APIRoute
    place: str
    value: Any
    body: Any = None


def document_of(route: APIRoute) -> dict[str, Any]:
    return INVOKER_DOCUMENT if route in OF_INVOKER else DOCUMENT


def method(route: APIRoute) -> str:
    return next(iter(route.methods or ()))


def about(route: APIRoute) -> dict[str, Any]:
    found: dict[str, Any] = document_of(route)["paths"][route.path][method(route).lower()]
    return found


def body_of(route: APIRoute) -> dict[str, Any]:
    """The schema and an example of its body; empty where it takes none."""
    found = about(route).get("requestBody", {}).get("content", {}).get("application/json", {})
    body: dict[str, Any] = found
    if body and "example" not in body:
        model = model_of_body(route)
        assert model is not None
        body["example"] = example_of(model)
    return body


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def properties(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Also of each of several schemas, one of which an object may have."""
    whole = resolved(schema, document)
    found: dict[str, Any] = {}
    for branch in (*whole.get("anyOf", ()), *whole.get("allOf", ())):
        found |= properties(branch, document)
    found |= whole.get("properties", {})
    return found


def places(
    schema: dict[str, Any], value: Any, document: dict[str, Any], at: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Of every property that objects of this schema have, down to those of objects in the example."""
    for name, rule in properties(schema, document).items():
        yield (*at, name)
        inner = value.get(name) if isinstance(value, dict) else None
        if isinstance(inner, dict):
            yield from places(rule, inner, document, (*at, name))


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
    for route in ALL:
        content, document = body_of(route), document_of(route)
        if not content:
            continue
        components = {"components": document["components"]}
        valid = jsonschema_rs.Draft202012Validator({**content["schema"], **components}).is_valid
        assert valid(content["example"])
        for place in places(content["schema"], content["example"], document):
            for value in (..., *WRONG):
                body = changed(content["example"], place, value)
                if not valid(body):
                    yield Forbidden(route, "/" + "/".join(place), value, body)


def of_parameters() -> Iterator[Forbidden]:
    for route in ROUTES:
        for parameter in about(route).get("parameters", ()):
            schema = resolved(parameter["schema"], DOCUMENT)
            if parameter["in"] == "path":
                continue
            texts = WRONG_TEXTS.get(schema.get("type", ""), ())
            narrow = schema.get("items", schema).keys() & {"enum", "format"}
            narrow |= {"pattern"} if "SUCCEEDED" in str(schema.get("items")) else set()
            for text in (*texts, *([FORBIDDEN_WORD] if narrow else [])):
                yield Forbidden(route, parameter["name"], text)
            if schema.get("type") == "string":
                valid = jsonschema_rs.Draft202012Validator(schema).is_valid
                for text in (each for each in FORBIDDEN_TEXTS if not valid(each)):
                    yield Forbidden(route, parameter["name"], text)


BODIES, PARAMETERS = list(of_bodies()), list(of_parameters())


def shown(each: Any) -> str:
    return f"{each.route.operation_id} {each.place} {str(each.value)[:20]!r}"


async def asked(client: httpx.AsyncClient, each: Forbidden, token: str) -> httpx.Response:
    path = each.route.path.replace("{service}", "ocr-service").replace("{jobId}", "job_0")
    path = path.replace("{planId}", "plan_0").replace("{group}", "f0")
    headers = {"authorization": token} if "/callbacks/" in path else {}
    if each.body is not None:
        return await client.request(method(each.route), path, json=each.body, headers=headers)
    given = next(p for p in about(each.route)["parameters"] if p["name"] == each.place)
    if given["in"] == "header":
        headers = {each.place: each.value}
        example = body_of(each.route).get("example")
        return await client.request(method(each.route), path, headers=headers, json=example)
    return await client.request(
        method(each.route),
        path,
        params={each.place: each.value},
        json=body_of(each.route).get("example"),
        headers=headers,
    )


def named_places(answer: httpx.Response) -> list[str]:
    errors = answer.json().get("errors", ())
    return [fault.get("pointer", fault.get("parameter")) for fault in errors]


def is_named(each: Forbidden, found: list[str]) -> bool:
    """The place, one inside of it, or the object that lacks it."""
    lacks = each.value is ... and each.place.rpartition("/")[0] in found
    return lacks or any(at == each.place or at.startswith(f"{each.place}/") for at in found)


TAKING = [route for route in ALL if body_of(route)]


@asynccontextmanager
async def asking(route: APIRoute) -> AsyncIterator[tuple[httpx.AsyncClient, str, World]]:
    """A client of its app, and the token of a callback."""
    world = World()
    async with client_of(context_of(world)) as client:
        token = bearer(await world.out(await accepted(client)))["authorization"]
        if route not in OF_INVOKER:
            yield client, token, world
            return
    transport = httpx.ASGITransport(invoker_app(None))  # type: ignore[arg-type]
    async with httpx.AsyncClient(base_url="http://invoker", transport=transport) as client:
        yield client, "", world


@pytest.mark.parametrize("route", TAKING, ids=lambda route: route.name)
async def test_a_body_that_the_document_forbids_is_refused_by_its_place(route: APIRoute) -> None:
    let_through: list[str] = []
    async with asking(route) as (client, token, _):
        for each in BODIES:
            if each.route is not route:
                continue
            answer = await asked(client, each, token)
            refused = answer.status_code == 422 and is_named(each, named_places(answer))
            if not refused:
                let_through.append(f"{shown(each)}: {answer.status_code} {answer.text[:300]}")
    assert not let_through


UNREADABLE: dict[str, tuple[bytes, int, str]] = {
    "none": (b"{", 400, "INVALID_JSON"),
    "twice": (b'{"reason": "a", "reason": "b"}', 400, "DUPLICATE_KEY"),
    "twice, inside": (b'{"x": [{"a": 1, "\\u0061": 2}]}', 400, "DUPLICATE_KEY"),
    "deep": (b'{"x":' * 65 + b"1" + b"}" * 65, 400, "NESTING_TOO_DEEP"),
    "large": (b'{"reason": "' + b"x" * 3 * 1024 * 1024 + b'"}', 413, "BODY_TOO_LARGE"),
    "list": (b"[]", 422, "INVALID_BODY"),
}


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("route", TAKING, ids=lambda route: route.name)
async def test_a_body_of_no_meaning_or_of_two_is_refused_by_every_route(
    route: APIRoute, what: str
) -> None:
    content, *refusal = UNREADABLE[what]
    async with asking(route) as (client, token, world):
        before = dict(world.jobs)
        path = route.path.replace("{jobId}", next(iter(before))).replace("{service}", "ocr-service")
        headers = {"authorization": token, "content-type": "application/json"}
        answer = await client.request(method(route), path, content=content, headers=headers)
        assert [answer.status_code, answer.json()["code"]] == refusal
        assert world.jobs == before


@pytest.mark.parametrize("each", PARAMETERS, ids=shown)
async def test_a_parameter_that_the_document_forbids_is_refused_by_its_name(
    each: Forbidden,
) -> None:
    world = World()
    async with client_of(context_of(world)) as client:
        await accepted(client)
        answer = await asked(client, each, "")
    code = "INVALID_ENVELOPE" if each.place in COUNTS_AS else "INVALID_PARAMETER"
    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
    assert COUNTS_AS.get(each.place, each.place) in named_places(answer)


def test_every_body_and_parameter_is_looked_at() -> None:
    posts = {route.name for route in TAKING}
    assert posts - {each.route.name for each in BODIES} == {"retry_outbox"}  # it takes anything
    assert {route.name for route in OF_INVOKER} < posts
    assert len(BODIES) > 600
    assert len(PARAMETERS) > 80
    assert {each.place for each in PARAMETERS} > set(COUNTS_AS)
