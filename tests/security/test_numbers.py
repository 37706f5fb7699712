"""Every number that a caller gives has published bounds, and a value beyond them is refused by its place."""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.core.errors import RequestError
from lucius.core.limits import ATTEMPT_NO, SLOTS, Number, Whole
from lucius.core.wire import parse_reply
from tests.api.live import BOUND, Live, live

HOSTILE = ("NaN", "Infinity", "-Infinity", "1e300", "-1e300", "1e-300", str(2**70), "-1", "true")
"""As JSON has them, or would."""
PLAN = "/v1/redrives"
BULK = {"filter": {}, "dry_run": True}
BODIES: Mapping[str, Mapping[str, Any]] = {PLAN: {"filter": {"code": "BROKEN"}}}


def numbers(schema: Any, at: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every rule of a number in a schema, and the field that it is for."""
    if isinstance(schema, list):
        for each in schema:
            yield from numbers(each, at)
    elif isinstance(schema, dict):
        if kind_of(schema) is not None:
            yield at, schema
        for name, rule in schema.get("properties", {}).items():
            yield from numbers(rule, name)
        for part in ("anyOf", "items"):
            yield from numbers(schema.get(part, []), at)


def kind_of(rule: Mapping[str, Any]) -> str | None:
    """The kind of number that a rule is for, whether or not null will do too."""
    kinds = rule.get("type", ())
    named = [kinds] if isinstance(kinds, str) else kinds
    return next((kind for kind in named if kind in ("integer", "number")), None)


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def body_schema(document: Mapping[str, Any], operation: Mapping[str, Any]) -> Any:
    """With what it refers to in its place."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    return inlined(schema, document["components"]["schemas"])


def inlined(node: Any, schemas: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [inlined(each, schemas) for each in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        return inlined(schemas[node["$ref"].rpartition("/")[2]], schemas)
    return {name: inlined(each, schemas) for name, each in node.items()}


def allowed(rule: Mapping[str, Any], text: str) -> bool:
    if text not in ("1e-300", "-1"):
        return False
    value = json.loads(text)
    fits = kind_of(rule) == "number" or float(value).is_integer()
    return fits and bool(rule["minimum"] <= value <= rule["maximum"])


@pytest.fixture
async def lucius(tmp_path: Path) -> Any:
    async with live(tmp_path) as lucius:
        await lucius.failed("one")
        yield lucius


async def test_every_number_of_the_contract_has_published_bounds(lucius: Live) -> None:
    document = (await lucius.client.get("/openapi.json")).json()
    found = 0
    for method, path, operation in operations(document):
        rules = list(numbers(body_schema(document, operation)))
        rules += [(p["name"], p["schema"]) for p in operation.get("parameters", ())]
        for name, rule in rules:
            if kind_of(rule) is not None:
                found += 1
                assert {"minimum", "maximum"} <= rule.keys(), (method, path, name)
    assert found > 20


async def test_a_hostile_number_in_a_body_is_refused_by_its_place(lucius: Live) -> None:
    document = (await lucius.client.get("/openapi.json")).json()
    await lucius.accepted("two")
    (directive,) = await lucius.pull()
    bound = {name: directive[name] for name in BOUND}
    tried = 0
    for _, path, operation in operations(document):
        for name, rule in numbers(body_schema(document, operation)):
            base = bound if "callbacks" in path else BODIES.get(path, BULK)
            base = {**base, **({"status": "SUCCEEDED"} if path.endswith("result") else {})}
            for text in HOSTILE:
                if allowed(rule, text):
                    continue
                tried += 1
                body = json.dumps({**base, name: "HERE"}).replace('"HERE"', text)
                if path.endswith("/replies"):
                    body = json.dumps({**base, "type": "ACK", **bound, name: "HERE"})
                    body = f'{{"replies": [{body.replace(chr(34) + "HERE" + chr(34), text)}]}}'
                await refused(lucius, directive, path, name, body)
    assert tried > 100
    assert (await lucius.client.get("/v1/services")).status_code == 200


async def refused(
    lucius: Live, directive: Mapping[str, Any], path: str, name: str, body: str
) -> None:
    token = f"Bearer {directive['callback_token']}" if "callbacks" in path else ""
    headers = {"content-type": "application/json", **({"authorization": token} if token else {})}
    if path.endswith("/replies"):
        body = body.replace('"type"', f'"callback_token": "{directive["callback_token"]}", "type"')
    answer = await lucius.client.post(
        path.replace("{service}", "ocr"), content=body, headers=headers
    )
    document = answer.json()
    if answer.status_code == 200 and path.endswith("/replies"):
        document = document["outcomes"][0]
    assert document["status"] in (400, 422), (path, name, body, document)
    if document["status"] == 422 and not path.endswith("/replies"):
        assert document["errors"][0]["pointer"] == f"/{name}", (path, body, document)


async def test_a_hostile_number_in_a_query_is_refused(lucius: Live) -> None:
    document = (await lucius.client.get("/openapi.json")).json()
    job_id = (await lucius.dlq())[0]
    for method, path, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            rule = parameter["schema"]
            if parameter["in"] != "query" or kind_of(rule) is None:
                continue
            for text in HOSTILE:
                if allowed(rule, text):
                    continue
                at = f"{path.replace('{jobId}', job_id)}?{parameter['name']}={text}"
                answer = await lucius.client.request(method.upper(), at, json={})
                assert answer.status_code == 422, (at, answer.text)


def test_every_number_of_a_protocol_file_has_bounds() -> None:
    schema = json.loads(files("lucius.adapters.configs").joinpath("schema.json").read_text())
    found = list(numbers(schema)) + [
        pair for rule in schema["$defs"].values() for pair in numbers(rule)
    ]
    tenants = schema["properties"]["tenants"]["additionalProperties"]
    found += list(numbers(tenants))
    assert {name for name, _ in found} == {"", "max_attempts", "max_inflight", "stage"}
    for name, rule in found:
        assert {"minimum", "maximum"} <= rule.keys(), name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slots", 1e300),
        ("slots", 2**70),
        ("slots", -1),
        ("slots", 0),
        ("slots", True),
        ("slots", float("nan")),
        ("slots", float("inf")),
        ("version", {}),
        ("version", 2),
        ("worker_id", []),
        ("attempt_no", 1e300),
        ("attempt_no", 2**70),
        ("attempt_no", float("nan")),
    ],
)
def test_an_ack_on_the_bus_is_held_to_the_same_bounds(field: str, value: Any) -> None:
    body = {"type": "ACK", "jobId": "job", "stepId": "a", "attempt_no": 1, "lease_id": "l"}
    with pytest.raises(RequestError) as error:
        parse_reply({**body, field: value})
    assert error.value.faults[0][0] == f"/{field}"


@given(st.integers() | st.floats() | st.booleans() | st.text() | st.none())
def test_a_rule_reads_what_its_schema_says_and_nothing_else(value: Any) -> None:
    for rule in (SLOTS, ATTEMPT_NO, Whole(0, 100), Number(0.001, 1000)):
        read, number = rule.read(value), isinstance(value, int | float)
        fits = number and not isinstance(value, bool) and rule.low <= value <= rule.high
        if isinstance(rule, Whole) and fits:
            fits = float(value).is_integer()
        assert (read is not None) is fits
        assert read is None or read == value
