"""Payloads: from JSON to a team's own dataclass, with a message that names the field that is wrong."""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from lucius.platform.errors import InvalidPayloadError

PayloadModel = Callable[..., Any]


def parse_payload(model: PayloadModel | None, payload: Any) -> Any:
    """The payload as the service wants it: as it came, as a dataclass, or through a function.

    Fields that a dataclass does not know are ignored, as contracts only grow. If it has a method
    `validate()`, that is called last. A ValueError anywhere makes the step fail for good.
    """
    if model is None:
        return payload
    try:
        parsed = _built(model, payload) if is_dataclass(model) else model(payload)
        validate = getattr(parsed, "validate", None)
        if validate is not None:
            validate()
        return parsed
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidPayloadError(str(error)) from error


def _built(model: PayloadModel, payload: Any) -> Any:
    if not isinstance(payload, Mapping):
        raise ValueError("the payload must be an object")
    given = {}
    for name, hint, required in _fields(model):
        if name in payload:
            given[name] = _checked(payload[name], hint, name)
        elif required:
            raise ValueError(f"/{name}: required")
    return model(**given)


@lru_cache(maxsize=256)
def _fields(model: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(model)
    return tuple(
        (f.name, hints[f.name], f.default is MISSING and f.default_factory is MISSING)
        for f in fields(model)
        if f.init
    )


def _checked(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _any_of(value, arguments, where)
    if origin in (list, tuple):
        _require(isinstance(value, list | tuple), where, "must be a list")
        items = (_checked(item, arguments[0], f"{where}/{n}") for n, item in enumerate(value))
        return origin(items)
    expected = origin or hint
    if expected is float:
        expected = (int, float)
    right = isinstance(value, expected) and (hint is bool or not isinstance(value, bool))
    _require(right, where, f"must be of type {getattr(hint, '__name__', hint)}")
    return value


def _any_of(value: Any, hints: tuple[Any, ...], where: str) -> Any:
    problem: ValueError | None = None
    for hint in hints:
        try:
            return _checked(value, hint, where)
        except ValueError as error:
            problem = problem or error
    raise problem or ValueError(f"/{where}: no type fits")


def _require(condition: bool, where: str, what: str) -> None:
    if not condition:
        raise ValueError(f"/{where}: {what}")
