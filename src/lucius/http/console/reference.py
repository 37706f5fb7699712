"""`/docs`: the API as a page, made from its OpenAPI document. It loads nothing from elsewhere."""

import json
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.words import JsonObject
from lucius.http.console.site import Pages, Site
from lucius.http.routing import Context, KnownCaller

PATH: Final = "/docs"
_SCHEMA: Final = "#/components/schemas/"


def add_docs(pages: Pages, site: Site) -> None:
    """The document does not change while a server runs, so it is taken apart once."""
    described: list[JsonObject] = []

    async def docs(context: Context, request: Request, caller: KnownCaller) -> Response:
        if not described:
            described.append(by_tag(request.app.openapi()))
        return site.page(request, None, "docs.html", **described[0], signs_in=False)

    pages.add("GET", PATH, docs, None)


def by_tag(document: JsonObject) -> JsonObject:
    tags: dict[str, list[JsonObject]] = {}
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            tags.setdefault(about["tags"][0], []).append(_operation(method, path, about))
    shapes = {name: _shape(each) for name, each in document["components"]["schemas"].items()}
    return {"info": document["info"], "tags": tags, "shapes": shapes}


def _operation(method: str, path: str, about: JsonObject) -> JsonObject:
    body = about.get("requestBody")
    schema = next(iter(body["content"].values()))["schema"] if body else None
    return {
        "id": about["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": about["summary"],
        "description": about.get("description", ""),
        "deprecated": about.get("deprecated", False),
        "roles": [about["x-lucius-role"], *about.get("x-lucius-also", ())]
        if "x-lucius-role" in about
        else [],
        "every_tenant": about.get("x-lucius-every-tenant", False),
        "parameters": [
            {**each, "type": type_of(each["schema"])} for each in about.get("parameters", ())
        ],
        "body": _shape(schema) if schema else None,
        "body_schema": schema,
        "answers": [_answer(status, each) for status, each in about["responses"].items()],
    }


def _answer(status: str, about: JsonObject) -> JsonObject:
    shapes, codes = [], []
    for content in about.get("content", {}).values():
        schema = content.get("schema", {})
        for part in schema.get("allOf", [schema]):
            if "$ref" in part:
                shapes.append(part["$ref"].removeprefix(_SCHEMA))
            codes += part.get("properties", {}).get("code", {}).get("enum", [])
    lines = [] if codes else [about["description"]]
    titled = dict(_titled(line) for line in about["description"].splitlines()) if codes else {}
    return {"status": status, "lines": lines, "shapes": shapes, "codes": titled}


def _titled(line: str) -> tuple[str, str]:
    """From "- `CODE`: what it means"."""
    code, _, title = line.removeprefix("- ").partition(": ")
    return code.strip("`"), title


def _shape(schema: JsonObject) -> JsonObject:
    required = set(schema.get("required", ()))
    return {
        "description": schema.get("description", ""),
        "fields": [
            {
                "name": name,
                "type": type_of(each),
                "required": name in required,
                "description": each.get("description", ""),
            }
            for name, each in schema.get("properties", {}).items()
        ],
    }


def type_of(schema: JsonObject) -> str:
    """In few words: `string`, `array of StepView`, `integer or null`."""
    for word, several in _KINDS.items():
        if word in schema:
            return several(schema[word])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"array of {type_of(schema.get('items', {}))}"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def _either(options: list[JsonObject]) -> str:
    return " or ".join(dict.fromkeys(type_of(each) for each in options))


_KINDS: Final[dict[str, Callable[[Any], str]]] = {
    "$ref": lambda ref: str(ref).removeprefix(_SCHEMA),
    "anyOf": _either,
    "oneOf": _either,
    "allOf": _either,
    "enum": lambda values: " | ".join(json.dumps(value) for value in values),
    "const": json.dumps,
}
