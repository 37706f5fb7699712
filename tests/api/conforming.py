"""Every answer has exactly the fields of its documented shape: checked on whatever a test asks for."""

import json
import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import httpx
from typing_extensions import is_typeddict

from lucius.api.app import OPERATIONS
from lucius.api.openapi import responses
from lucius.api.operation import Operation
from lucius.api.problems import MEDIA_TYPE
from lucius.api.routing import JSON
from lucius.contract.shapes import DirectiveShape
from tests.contract.fitting import every_model, misfits

MODELS = every_model()
OPEN = {DirectiveShape}
"""Also carries the fields of an envelope that LUCIUS does not know."""
ROUTES = [
    (operation, re.compile(re.sub(r"\{\w+\}", r"[^/:]+", operation.path)))
    for operation in OPERATIONS
]


def operation_of(request: httpx.Request) -> Operation | None:
    for operation, pattern in ROUTES:
        if operation.method == request.method and pattern.fullmatch(request.url.path):
            return operation
    return None


def faults(value: Any, shape: Any, at: str = "") -> Iterator[str]:
    """Where a value is not what its shape says, both ways: nothing is missing, nothing is added."""
    kind, inner = get_origin(shape), get_args(shape)
    if is_typeddict(shape):
        yield from _object_faults(value, shape, at)
    elif kind is UnionType:
        if not any(not list(faults(value, each, at)) for each in inner):
            yield f"{at}: {value!r} is not {shape}"
    elif kind is list:
        if not isinstance(value, list):
            yield f"{at}: {value!r} is no list"
            return
        for number, each in enumerate(value):
            yield from faults(each, inner[0], f"{at}/{number}")
    elif kind is dict:
        if not isinstance(value, dict):
            yield f"{at}: {value!r} is no object"
            return
        for name, each in value.items():
            yield from faults(each, inner[1], f"{at}/{name}")
    elif shape is not Any and not _is(value, shape):
        yield f"{at}: {value!r} is not {shape}"


def _is(value: Any, shape: Any) -> bool:
    if shape is NoneType or shape is None:
        return value is None
    if shape is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, shape) and (shape is bool or not isinstance(value, bool))


def _object_faults(value: Any, shape: Any, at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at}: {value!r} is no object"
        return
    hints = get_type_hints(shape)
    for name in shape.__required_keys__ - value.keys():
        yield f"{at}/{name} is missing"
    if shape not in OPEN:
        for name in value.keys() - hints.keys():
            yield f"{at}/{name} is not documented"
    for name in value.keys() & hints.keys():
        yield from faults(value[name], hints[name], f"{at}/{name}")


def documented_codes(operation: Operation) -> set[tuple[int, str]]:
    """Status and code of every problem that OpenAPI lists for the operation."""
    found = set()
    for status, document in responses(operation).items():
        if MEDIA_TYPE in document.get("content", {}):
            _, listed = document["content"][MEDIA_TYPE]["schema"]["allOf"]
            found |= {(status, code) for code in listed["properties"]["code"]["enum"]}
    return found


def media_of(answer: httpx.Response) -> str:
    return str(answer.headers.get("content-type", "")).partition(";")[0]


def shape_of(operation: Operation, answer: httpx.Response) -> Any:
    if media_of(answer) == MEDIA_TYPE:
        return operation.problem
    documented = operation.answers.get(answer.status_code)
    return documented.shape if documented is not None and media_of(answer) == JSON else None


class Conforming:
    """A hook of an HTTP client. `seen` is what was answered in a documented shape."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    async def __call__(self, answer: httpx.Response) -> None:
        operation = operation_of(answer.request)
        if operation is None:
            return
        problem = media_of(answer) == MEDIA_TYPE
        about = f"{operation.method} {operation.path}"
        assert problem or answer.status_code in operation.answers, f"{about}: {answer.status_code}"
        shape = shape_of(operation, answer)
        if shape is None:
            return
        await answer.aread()
        content = json.loads(answer.content)
        found = list(faults(content, shape))
        assert not found, f"{about}: {found}"
        found = misfits(answer.content, MODELS[shape.__name__.removesuffix("Shape") + "View"])
        assert not found, f"{about}: {found}"
        if problem:
            given = (answer.status_code, content["code"])
            assert given in documented_codes(operation), f"{about}: {given}"
        else:
            self.seen.add((operation.method, operation.path))
