"""Whether JSON is exactly what a model says: nothing is missing, added, of another kind, shown otherwise."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from lucius.contract import models
from lucius.contract.models.base import Model, RequestBody, View
from lucius.contract.models.messages import DirectiveMessage
from lucius.http import invoker

OPEN = {DirectiveMessage}
"""Also carries the fields of an envelope that LUCIUS does not know."""
_BASES = {Model, View, RequestBody}


def every_model() -> dict[str, type[BaseModel]]:
    """Those of the internal API, too."""
    found: dict[str, type[BaseModel]] = {}
    public = [each.name for each in pkgutil.iter_modules(models.__path__, f"{models.__name__}.")]
    for module in (*public, invoker.__name__):
        for each in vars(importlib.import_module(module)).values():
            if isinstance(each, type) and issubclass(each, Model) and each not in _BASES:
                found[each.__name__] = each
    return {name: each for name, each in found.items() if not name.startswith("_")}


def misfits(content: bytes, model: type[BaseModel]) -> list[str]:
    """Where JSON is not what the model says."""
    try:
        read = model.model_validate_json(content, strict=True)
    except ValidationError as error:
        return [f"{fault['loc']}: {fault['msg']}" for fault in error.errors()]
    found = [f"{at} is not documented" for at in undocumented(read)]
    shown = json.loads(read.model_dump_json(exclude_unset=True))
    return found if shown == json.loads(content) else [*found, f"it is shown as {shown}"]


def undocumented(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, BaseModel):
        if type(value) not in OPEN:
            yield from (f"{at}/{name}" for name in value.model_extra or ())
        for name in value.model_fields_set & type(value).model_fields.keys():
            yield from undocumented(getattr(value, name), f"{at}/{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from undocumented(each, f"{at}/{number}")
