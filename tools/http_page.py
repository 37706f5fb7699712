"""The reference page of the HTTP API: every operation, from the OpenAPI document."""

from typing import Any, Final

from lucius.http.app import create_app
from tests.api.world import World, context_of

_HEAD: Final = """# HTTP API

Generated from the OpenAPI document. Do not edit. A server has it at `/openapi.json`, and at `/docs` as a page
with every field and example. [Error codes](errors.md) says what a code in a problem means. The document
of the bus is [asyncapi.json](asyncapi.json), as a page [messages](messages.md).
"""
_COLUMNS: Final = "\n| operation | does | role |\n|---|---|---|\n"


def http_page() -> str:
    found: dict[str, list[str]] = {}
    paths: dict[str, Any] = create_app(context_of(World())).openapi()["paths"]
    for path, methods in paths.items():
        for method, about in methods.items():
            gone = " (deprecated)" if about.get("deprecated") else ""
            role = about.get("x-lucius-role") or "-"
            row = f"| `{method.upper()} {path}` | {about['summary']}{gone} | {role} |\n"
            found.setdefault(about["tags"][0], []).append(row)
    parts = (f"\n## {tag.capitalize()}\n{_COLUMNS}{''.join(rows)}" for tag, rows in found.items())
    return _HEAD + "".join(parts)
