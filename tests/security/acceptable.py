"""The OpenAPI document narrowed to what the server under test accepts.

The contract is the same for every installation, so it cannot say which protocols there are, what
their payloads hold, or which references are allowed. Told that, a generator makes requests that have to
be accepted.
"""

from copy import deepcopy
from typing import Any, Final

from lucius.adapters.configs.files import FileConfig

Json = dict[str, Any]
CATALOG: Final = FileConfig().catalog()
_TEXT: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 100,
    "pattern": "^[!-~]([ -~]*[!-~])?$",
}
_URI: Final = {
    "type": "string",
    "maxLength": 200,
    "pattern": r"^((https|s3|az|abfs|gs)://[a-z][a-z0-9-]*|file://)(/[A-Za-z0-9_-]+)+$",
}
_PLAIN: Final = {
    "anyOf": [
        _TEXT,
        {"type": "boolean"},
        {"type": "integer", "minimum": -(2**53), "maximum": 2**53},
        {"type": "array", "items": {"type": "number", "minimum": -1e9, "maximum": 1e9}},
    ]
}
"""What every store carries unchanged: an integer beyond 64 bits is refused wherever it is."""
_MOMENT: Final = {"type": "number", "minimum": 0, "maximum": 0.01}
"""For `wait_seconds`: nobody is to wait long."""
_FURTHER: Final = {"patternProperties": {"^x_[a-z]+$": _PLAIN}, "additionalProperties": False}
_REFERENCE: Final = {
    "anyOf": [
        _URI,
        {"type": "object", "required": ["uri"], "properties": {"uri": _URI}, **_FURTHER},
    ]
}
_WEBHOOK: Final = {"type": "string", "pattern": r"^https://[a-z]+\.example\.com/[a-z0-9]*$"}


def acceptable(document: Json) -> Json:
    """A copy, with the bodies and headers of what creates jobs."""
    narrowed = deepcopy(document)
    for path in ("/v1/orchestrate", "/v1/commands"):
        _body(narrowed, path)["schema"] = _envelope(_schema(narrowed, path))
        for parameter in narrowed["paths"][path]["post"]["parameters"]:
            parameter["schema"] = _TEXT if parameter["in"] == "header" else _MOMENT
    redrive = _schema(narrowed, "/v1/jobs/{jobId}:redrive")
    redrive["properties"]["payload"] = {"anyOf": [_payload("OCR"), {"type": "null"}]}
    redrive["properties"]["output_ref"] = {"anyOf": [_URI, {"type": "null"}]}
    return narrowed


def _body(document: Json, path: str) -> Json:
    body: Json = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return body


def _schema(document: Json, path: str) -> Json:
    """Of a body, itself: bodies are named by a reference."""
    name = _body(document, path)["schema"]["$ref"].rpartition("/")[2]
    schema: Json = document["components"]["schemas"][name]
    return schema


def _envelope(schema: Json) -> Json:
    """A protocol and a payload for it; a key comes in the header alone, so that the two agree."""
    properties = {
        **schema["properties"],
        "tenant_id": _TEXT,
        "doc_id": _TEXT,
        "correlation_id": _TEXT,
        "tracestate": _TEXT,
        "input_ref": _REFERENCE,
        "output_ref": _REFERENCE,
        "callback_urls": {"type": "array", "items": _WEBHOOK, "maxItems": 8},
    }
    del properties["idempotency_key"]
    return {"anyOf": [_for(name, schema, properties) for name in CATALOG.protocols]}


def _for(request_type: str, schema: Json, properties: Json) -> Json:
    own = {"request_type": {"const": request_type}, "payload": _payload(request_type)}
    return {
        "type": "object",
        "required": [*schema["required"], "doc_id"],
        "additionalProperties": False,
        "properties": {**properties, **own},
    }


def _payload(request_type: str) -> Json:
    """One for all steps, so it has to suit each of them."""
    schemas = CATALOG.protocols[request_type].schemas.values()
    return {
        "type": "object",
        "required": [name for schema in schemas for name in schema.get("required", ())],
        "properties": {
            name: _storable(rule)
            for schema in schemas
            for name, rule in schema.get("properties", {}).items()
        },
        **_FURTHER,
    }


def _storable(rule: Any) -> Any:
    """The same rule, without integers beyond 64 bits at any depth, and without fields it does not name."""
    if isinstance(rule, list):
        return [_storable(each) for each in rule]
    if not isinstance(rule, dict):
        return rule
    narrowed = {name: _storable(part) for name, part in rule.items()}
    if rule.get("type") == "integer":
        return {"maximum": 2**53, **narrowed}
    if "object" in rule.get("type", ()):
        return {**narrowed, "additionalProperties": False}
    return narrowed
