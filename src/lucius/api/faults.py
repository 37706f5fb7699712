"""What of a request does not fit its models, as the faults of a problem document: all of them at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from lucius.api.problems import Problem
from lucius.contract.models.base import JsonObject

M = TypeVar("M", bound=BaseModel)
_BEGINNING: Final = re.compile(r"^\w+ should ")
_WORDS: Final = {
    "missing": "is missing",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "extra_forbidden": "is not known here",
}
"""Where pydantic's own words are those of Python."""
_MAX_NAME: Final = 64


def unfit(error: RequestValidationError) -> Problem:
    """Faults of parameters come first: what a request asks for is then not what it meant."""
    faults = list(_faults(error.errors(), error.body))
    of_parameters = [fault for fault in faults if "parameter" in fault]
    if not of_parameters:
        return Problem("INVALID_BODY", errors=faults)
    detail = "; ".join(f"{each['parameter']}: {each['detail']}" for each in of_parameters)
    return Problem("INVALID_PARAMETER", detail, errors=[*of_parameters, *faults][: len(faults)])


def read_as(model: type[M], body: Mapping[str, Any], code: str = "INVALID_BODY") -> M:
    """The body as its model, for the routes that read it themselves."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise Problem(code, errors=list(_faults(found, body))) from None


def _faults(errors: Sequence[Any], body: Any) -> Iterator[JsonObject]:
    """Each place once: what fits none of several models is a fault for each of them."""
    said: dict[tuple[str, str], list[str]] = {}
    for each in errors:
        place, *inside = each["loc"]
        if place == "body":
            key = ("pointer", _pointer(inside, body, missing=each["type"] == "missing"))
        else:
            key = ("parameter", str(inside[0]) if inside else str(place))
        words = said.setdefault(key, [])
        if (detail := _detail(each)) not in words:
            words.append(detail)
    for (kind, at), details in said.items():
        yield {kind: at, "detail": " or ".join(details)}


def _pointer(inside: Sequence[Any], body: Any, *, missing: bool) -> str:
    """Pydantic also names the member of a union that it tried: only what is in the body is a place."""
    pointer, value = "", body
    for number, part in enumerate(inside):
        last = number == len(inside) - 1
        if isinstance(value, dict) and (part in value or (missing and last)):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            continue
        pointer += "/" + str(part)[:_MAX_NAME].replace("~", "~0").replace("/", "~1")
    return pointer


def _detail(error: Any) -> str:
    """What must be there. What was there instead is not repeated."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return _WORDS.get(error["type"]) or _BEGINNING.sub("must ", str(error["msg"]))
