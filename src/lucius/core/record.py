"""Records: values that nobody changes, and changed copies of them.

They are frozen to the type checker and not at run time, where the guard of a frozen dataclass makes
each one several times dearer to build, and a decision builds a dozen. Copying goes slot by slot and
runs no `__init__`, so it is for records only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, dataclass_transform

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
