"""Records: values that nobody changes, and changed copies of them.

They are frozen to the type checker and not at run time, where the guard of a frozen dataclass makes
each one several times dearer to build, and a decision builds a dozen. Copying goes slot by slot and
runs no `__init__`, so it is for records only.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, dataclass_transform

# JSON that is kept as text until it is needed: parsed, it may take thirty times the memory.

_parse: Final = json.JSONDecoder().decode


class Packed(Mapping[str, Any]):
    """A JSON object as its text.

    It reads like any mapping, but parses itself for every look: who needs more than one opens it.
    """

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = bytes(memoryview(text))
        """A copy: encoders hand out buffers that are much larger than what is in them."""

    def opened(self) -> dict[str, Any]:
        value: dict[str, Any] = _parse(self.text.decode())
        return value

    def __getitem__(self, key: str) -> Any:
        return self.opened()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened())

    def __len__(self) -> int:
        return len(self.opened())

    def __repr__(self) -> str:
        return f"Packed({len(self.text)} bytes)"


def opened(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return value.opened() if isinstance(value, Packed) else value


Record = TypeVar("Record")

_COPIERS: Final[dict[type, Callable[[Any], Any]]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[Record]) -> type[Record]:
    """A slotted, comparable, hashable value. Assigning to its fields does not pass `make check`."""
    made = dataclass(slots=True, unsafe_hash=True)(kind)
    _COPIERS[made] = _copier(made)
    return made


def copied(record: Record) -> Record:
    """For whoever writes on the copy (`core.drafts`); others use `dataclasses.replace`, which is checked."""
    copy: Record = _COPIERS[type(record)](record)
    return copy


def _copier(kind: type) -> Callable[[Any], Any]:
    """Written out field by field, as `dataclasses` does for `__init__`."""
    names: tuple[str, ...] = getattr(kind, "__slots__", ())
    lines = [f"    copy.{name} = record.{name}" for name in names]
    source = "\n".join(["def copier(record):", "    copy = new(kind)", *lines, "    return copy"])
    scope: dict[str, Any] = {"new": object.__new__, "kind": kind}
    exec(source, scope)
    copier: Callable[[Any], Any] = scope["copier"]
    return copier
