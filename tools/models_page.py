"""Fills the parts of reference pages that come from the models of the contract: tables of fields, examples.

A part stands between `<!-- fields of NAME -->` (or `example of NAME`) and `<!-- end -->`; all else is prose.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from lucius.contract.models.base import RequestBody, example_of
from lucius.contract.models.commands import Command
from lucius.contract.models.messages import (
    AckMessage,
    DirectiveMessage,
    DirectiveProperties,
    HeartbeatMessage,
    HeartbeatView,
    NoticeMessage,
    ReleaseMessage,
    ResultMessage,
)

DOCS: Final = Path(__file__).resolve().parent.parent / "docs/reference"
PAGES: Final = ("envelope.md", "messages.md")
_PART: Final = re.compile(r"(<!-- (fields|example) of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_REPLIES: Final = (AckMessage, ResultMessage, HeartbeatMessage, ReleaseMessage)
_SHOWN: Final[dict[str, tuple[type[BaseModel], str]]] = {
    "Command": (Command, "envelope"),
    "DirectiveMessage": (DirectiveMessage, "directive"),
    "HeartbeatView": (HeartbeatView, "answer heartbeat"),
    "NoticeMessage": (NoticeMessage, "notice"),
}
"""Models that have examples, with the words after `json`, by which the tests find them."""
_TABLES: Final[dict[str, Sequence[type[BaseModel]]]] = {
    **{name: (model,) for name, (model, _) in _SHOWN.items()},
    "DirectiveProperties": (DirectiveProperties,),
    "Replies": _REPLIES,
}
_UNSHOWN: Final = {"DirectiveMessage": {"pool"}}
"""Not in an example, because a directive rarely has it."""


def filled(page: str) -> str:
    """The page as it is, with its parts as the models have them."""
    return _PART.sub(_part, (DOCS / page).read_text("utf-8"))


def _part(found: re.Match[str]) -> str:
    begins, kind, name, ends = found.groups()
    text = _table(_TABLES[name]) if kind == "fields" else _example(name)
    return f"{begins}{text}\n{ends}"


def _example(name: str) -> str:
    model, words = _SHOWN[name]
    also = model.model_fields.keys() - _UNSHOWN.get(name, set())
    text = json.dumps(example_of(model, *also), indent=2, ensure_ascii=False)
    return f"```json {words}\n{text}\n```"


def _table(models: Sequence[type[BaseModel]]) -> str:
    several, body = len(models) > 1, issubclass(models[0], RequestBody)
    heads = ["field", *(["in"] if several else []), *(["needed"] if body else []), "what it is"]
    lines = [_row(heads), "|" + "---|" * len(heads)]
    for name, of in _fields(models).items():
        field = of[0].model_fields[name]
        where = "all" if of == list(models) else ", ".join(_kind(model) for model in of)
        needed = ["yes" if field.is_required() else "no"] if body else []
        about = (field.description or "").replace("|", "\\|")
        lines.append(_row([f"`{name}`", *([where] if several else []), *needed, about]))
    return "\n".join(lines)


def _fields(models: Sequence[type[BaseModel]]) -> dict[str, list[type[BaseModel]]]:
    """Each field with the models that have it; those that all have come first."""
    found: dict[str, list[type[BaseModel]]] = {}
    for model in models:
        for name in model.model_fields:
            found.setdefault(name, []).append(model)
    return dict(sorted(found.items(), key=lambda item: len(item[1]) < len(models)))


def _kind(model: type[BaseModel]) -> str:
    default: Any = model.model_fields["type"].default
    return str(default)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
