"""Schemas of the OpenAPI document with words for people: what each property means, its states, examples."""

from collections.abc import Mapping
from typing import Any, Final

from lucius.api.described import jobs, system
from lucius.api.described.states import WORDS
from lucius.contract.envelope import JsonObject

PROPERTIES: Final = {**jobs.PROPERTIES, **system.PROPERTIES}
"""By name, or by shape and name where one word means different things. Each with a value as an example."""
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")


def described(schema: JsonObject, shape: str = "") -> JsonObject:
    """The schema with a description for each property that has none, and the words that a state can be."""
    made = dict(schema)
    if "properties" in schema:
        made["properties"] = {
            name: _property(name, rule, shape) for name, rule in schema["properties"].items()
        }
    if isinstance(schema.get("items"), dict):
        made["items"] = described(schema["items"])
    for word in _BRANCHES:
        if word in schema:
            made[word] = [described(each) for each in schema[word]]
    return made


def _property(name: str, rule: JsonObject, shape: str) -> JsonObject:
    made = described(rule)
    if "description" not in made:
        found = PROPERTIES.get(f"{shape}.{name}") or PROPERTIES.get(name)
        made |= {"description": found[0]} if found else {}
    words = WORDS.get(f"{shape}.{name}")
    return {**made, "enum": words} if words else made


def example_of(
    schema: JsonObject, schemas: Mapping[str, JsonObject], *also: str, shape: str = ""
) -> Any:
    """A value that fits the schema: what it requires, and those of the other properties that `also` names."""
    reference = schema.get("$ref")
    if reference is not None:
        named = reference.rpartition("/")[2]
        return example_of(schemas[named], schemas, *also, shape=named)
    if "properties" in schema:
        wanted = {*schema.get("required", ()), *also}
        return {
            name: _value(name, rule, schemas, shape)
            for name, rule in schema["properties"].items()
            if name in wanted
        }
    for word in _BRANCHES:
        if word in schema:
            return example_of(schema[word][0], schemas)
    if schema.get("type") == "array":
        return [example_of(schema["items"], schemas)]
    return schema.get("enum", [{}])[0]


def _value(name: str, rule: JsonObject, schemas: Mapping[str, JsonObject], shape: str) -> Any:
    """The value of the table; what is made of shapes itself is made of their examples."""
    found = PROPERTIES.get(f"{shape}.{name}") or PROPERTIES.get(name)
    if _has_shape(rule) and not (found and found[1] is None):
        return example_of(rule, schemas)
    allowed = rule.get("enum")
    if found is None or (allowed and found[1] not in allowed):
        return example_of(rule, schemas)
    return found[1]


def _has_shape(rule: JsonObject) -> bool:
    parts = [
        rule,
        rule.get("items") or {},
        *(each for word in _BRANCHES for each in rule.get(word, ())),
    ]
    return any("$ref" in part or "properties" in part for part in parts)
