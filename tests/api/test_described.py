"""The OpenAPI document is for people too: every property described, states as enums, examples that fit."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from lucius.http.document import SHOWN
from tests.api.world import document

DOCUMENT: dict[str, Any] = document()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
STATES = {"state", "status", "phase", "mode", "resolved_mode", "outcome", "severity", "engine"}
"""Names of properties that take one of a few words, unless they are numbers."""


def properties(node: Any, at: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every property of every schema below, with its place. Examples are no schemas."""
    if isinstance(node, dict):
        named = node.get("properties")
        for name, rule in named.items() if isinstance(named, dict) else ():
            yield at, name, rule
        for key, each in node.items():
            if key != "example":
                yield from properties(each, f"{at}/{key}")
    elif isinstance(node, list):
        for number, each in enumerate(node):
            yield from properties(each, f"{at}/{number}")


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request and answer that has a body, by operation, status and media type."""
    for methods in (*DOCUMENT["paths"].values(), *DOCUMENT["webhooks"].values()):
        for operation in methods.values():
            name = operation["operationId"]
            for media, body in operation.get("requestBody", {}).get("content", {}).items():
                yield f"{name} request {media}", body
            for status, answer in operation["responses"].items():
                for media, body in answer.get("content", {}).items():
                    yield f"{name} {status} {media}", body


def undescribed(document: Any) -> list[str]:
    return [
        f"{at}/{name}" for at, name, rule in properties(document) if not rule.get("description")
    ]


def loose_states(document: Any) -> list[str]:
    return [
        f"{at}/{name}"
        for at, name, rule in properties(document)
        if name in STATES
        and rule.get("type") == "string"
        and not ({"enum", "pattern"} & rule.keys())
    ]


def misfits(body: dict[str, Any]) -> list[str]:
    whole = {**body.get("schema", {}), "components": DOCUMENT["components"]}
    validator = jsonschema_rs.Draft202012Validator(whole)
    return [error.message for error in validator.iter_errors(body["example"])]


def test_every_property_is_described() -> None:
    assert len(list(properties(DOCUMENT))) > 500
    assert undescribed(DOCUMENT) == []


KEYWORDS = re.compile(r'"(?:ge|gt|le|lt|min_length|max_length|multiple_of)": ')
"""Of pydantic: where a bound stands behind a validator, it is published so, and no reader knows it."""


def test_every_bound_is_published_as_json_schema_has_it() -> None:
    assert KEYWORDS.findall(json.dumps(DOCUMENT)) == []
    assert KEYWORDS.search(json.dumps({"type": "integer", "ge": 1}))


def test_states_are_enums() -> None:
    assert loose_states(DOCUMENT) == []
    assert SCHEMAS["JobView"]["properties"]["state"]["enum"][0] == "QUEUED"


def test_every_body_has_an_example() -> None:
    assert [name for name, body in bodies() if "example" not in body] == []


def test_every_example_fits_its_schema() -> None:
    found = {name: misfits(body) for name, body in bodies()}
    assert len(found) > 300
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_what_examples_show_is_of_operations_that_exist() -> None:
    names = {name.split()[0] for name, _ in bodies()}
    assert set(SHOWN) <= names


def test_the_walk_finds_what_is_missing() -> None:
    """The same checks, on a document that lacks everything."""
    bare = {"properties": {"never_described": {"type": "string"}, "state": {"type": "string"}}}
    assert undescribed({"Some": bare}) == ["/Some/never_described", "/Some/state"]
    assert loose_states({"Some": bare}) == ["/Some/state"]
    wrong = {"schema": {"$ref": "#/components/schemas/SubmittedView"}, "example": {"jobId": 1}}
    assert len(misfits(wrong)) == 3


def test_the_example_of_a_job_shows_its_steps() -> None:
    answer = DOCUMENT["paths"]["/v1/jobs/{jobId}"]["get"]["responses"]["200"]
    job = answer["content"]["application/json"]["example"]
    assert job["steps"][0]["outbox"]["state"] == "SENT"
