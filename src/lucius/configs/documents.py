"""Reads one protocol document, YAML or JSON. Unknown fields, wrong types and repeated keys are refused."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema_rs
import yaml

from lucius.core.errors import ProtocolError
from lucius.core.json_faults import pointer


@dataclass(frozen=True, slots=True)
class Document:
    """The content of one file. Messages call the file by `name`."""

    name: str
    body: dict[str, Any]


class _StrictLoader(yaml.SafeLoader):
    """YAML with the types of JSON: a date stays text, and a key may stand only once."""

    yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in rules if tag != "tag:yaml.org,2002:timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            text = f"{key.tag} {key.value}"
            if text in names:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value} is there twice", key.start_mark
                )
            names.add(text)
        return super().construct_mapping(node, deep)


def parse_document(name: str, text: str) -> Document:
    """Raises ProtocolError with the name, the place and the reason."""
    try:
        body = parse_json(name, text) if name.endswith(".json") else _yaml(text)
        body = json.loads(json.dumps({} if body is None else body, allow_nan=False))
    except yaml.YAMLError as error:
        raise ProtocolError(f"{name}: not valid YAML: {_in_one_line(error)}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(name, error) from error
    return checked_document(name, body)


def parse_json(name: str, text: str) -> Any:
    """Raises ProtocolError: no key twice, no numbers that JSON does not have."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(name, error) from error
    return found


def _not_json(name: str, error: Exception) -> ProtocolError:
    return ProtocolError(f"{name}: not valid JSON: {error}")


def checked_document(name: str, body: Any) -> Document:
    """Raises ProtocolError that lists every place where the body is not one of a protocol file."""
    faults = schema_faults(_shape(), body)
    if faults:
        raise ProtocolError("\n".join(f"{name}: {at or '/'}: {reason}" for at, reason in faults))
    return Document(name, body)


def _yaml(text: str) -> Any:
    return yaml.load(text, Loader=_StrictLoader)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice} is there twice")
    return found


def _in_one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())


@cache
def _shape() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        json.loads(files("lucius.configs").joinpath("schema.json").read_text())
    )


def schema_faults(validator: jsonschema_rs.Validator, value: Any) -> list[tuple[str, str]]:
    return [
        (pointer(*error.instance_path), error.message) for error in validator.iter_errors(value)
    ]
