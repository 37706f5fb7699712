"""Payloads: from JSON to a team's own model, with a message that names every field that is wrong."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from lucius.platform.errors import InvalidPayloadError

PayloadModel = Callable[..., Any]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def parse_payload(model: PayloadModel | None, payload: Any) -> Any:
    """The payload as the service wants it: as it came, as a model, or through a function.

    A model is a dataclass, a TypedDict or a pydantic model. Its types are taken strictly: "2" is no
    number. Fields that it does not know are ignored, as contracts only grow. If it has a method
    `validate()`, that is called last. A ValueError anywhere makes the step fail for good.
    """
    if model is None:
        return payload
    try:
        if not isinstance(model, type):
            return model(payload)
        parsed = _adapter(model).validate_json(json.dumps(payload), strict=True)
        validate = getattr(parsed, "validate", None)
        if validate is not None and not hasattr(model, "model_validate"):
            validate()
        return parsed
    except ValidationError as error:
        raise InvalidPayloadError("; ".join(map(_line, error.errors()))) from error
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidPayloadError(str(error)) from error


def payload_schema(model: PayloadModel | None) -> dict[str, Any]:
    """The JSON schema of a step's payload, for `payload_schema` of its step type in the protocol file.

    A function tells nothing about what it takes, and a service without a model takes anything.
    """
    if not isinstance(model, type):
        return {"type": "object"}
    schema = _adapter(model).json_schema()
    return {"$schema": DIALECT, **schema}


@lru_cache(maxsize=256)
def _adapter(model: type) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _line(error: Any) -> str:
    return f"/{'/'.join(map(str, error['loc']))}: {error['msg'].lower()}"
