"""Fields that nobody knows, with names so close to a known one that a slip of the keys is likely.

Such a field is kept and passed on like every other; whoever sent it is only told.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from lucius.contract.models.commands import Command
from lucius.core.json_faults import pointer

LEAST: Final = 4
"""Letters of a name that one edit may change. In shorter ones almost everything is close."""
MOST_EXAMINED: Final = 200
MOST_WARNINGS: Final = 10
MOST_ITEMS: Final = 100
"""Of a list, so many from the first on are looked at."""
DEEPEST: Final = 4
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_ENVELOPE: Final = frozenset(Command.model_fields)


class Warned(NamedTuple):
    """Where the field stands, and which one may be meant."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Known:
    """The fields that a schema names at one place, what it names below each, and in the items of a list."""

    fields: "Mapping[str, Known]"
    items: "Known | None" = None
    takes_any: bool = False
    """Names are free here, by a pattern or for a map: no name is a slip."""


NOTHING: Final = Known({}, takes_any=True)


def known_fields(schema: Mapping[str, Any] | None) -> Known:
    return NOTHING if schema is None else _read(schema, schema, DEEPEST)


def _read(schema: Any, root: Mapping[str, Any], depth: int) -> Known:
    parts = list(_parts(schema, root, DEEPEST))
    if depth == 0 or not parts:
        return NOTHING
    fields = {
        name: _read(each, root, depth - 1)
        for part in parts
        for name, each in part.get("properties", {}).items()
    }
    items = next((part["items"] for part in parts if "items" in part), None)
    takes_any = not fields or any(
        "patternProperties" in part or isinstance(part.get("additionalProperties"), dict)
        for part in parts
    )
    return Known(fields, None if items is None else _read(items, root, depth - 1), takes_any)


def _parts(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """The schema itself, what it refers to in its own document, and its branches."""
    if not isinstance(schema, Mapping) or depth == 0:
        return
    yield schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        yield from _parts(root.get("$defs", {}).get(reference[8:]), root, depth - 1)
    for word in _BRANCHES:
        for branch in schema.get(word, ()):
            yield from _parts(branch, root, depth - 1)


def merged(several: Sequence[Known], *names: str) -> Known:
    """What any of several steps knows, for a payload that goes to all of them; `names` are known besides."""
    if len(several) == 1 and not names:
        return several[0]
    fields = dict.fromkeys(names, NOTHING)
    for each in several:
        fields |= each.fields
    return Known(fields, takes_any=any(each.takes_any for each in several))


class Unknown(NamedTuple):
    at: str
    name: str
    known: Collection[str]


def near_misses(
    extra: Mapping[str, Any], payloads: Iterable[tuple[str, Any, Known]]
) -> tuple[Warned, ...]:
    """`extra`: fields beside those of an envelope. `payloads`: each with its place and what is known."""
    unknown = chain(
        (Unknown("", name, _ENVELOPE) for name in extra if name not in _ENVELOPE),
        chain.from_iterable(_unknown(value, known, at) for at, value, known in payloads),
    )
    found = (
        Warned(each.at + pointer(each.name), f"is not known here: did you mean `{meant}`?")
        for each in islice(unknown, MOST_EXAMINED)
        if (meant := nearest(each.name, each.known)) is not None
    )
    return tuple(islice(found, MOST_WARNINGS))


def _unknown(value: Any, known: Known, at: str) -> Iterator[Unknown]:
    if isinstance(value, list) and known.items is not None:
        for number, each in enumerate(islice(value, MOST_ITEMS)):
            yield from _unknown(each, known.items, f"{at}/{number}")
    if not isinstance(value, Mapping):
        return
    for name, each in value.items():
        below = known.fields.get(name)
        if below is not None:
            if below is not NOTHING:
                yield from _unknown(each, below, at + pointer(name))
        elif not known.takes_any:
            yield Unknown(at, name, known.fields.keys())


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that this one may be a slip of, if any. An exact name is none."""
    if name in known:
        return None
    plain = _plain(name)
    same = (each for each in known if _plain(each) == plain)
    edited = (each for each in known if len(each) >= LEAST and _one_edit(plain, _plain(each)))
    return next(chain(same, edited), None)


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    """Without what people mix up: case, and what stands between words."""
    return name[:256].casefold().replace("_", "").replace("-", "").replace(" ", "")


def _one_edit(one: str, other: str) -> bool:
    """One letter more, less or other, or two neighbours the other way round."""
    if abs(len(one) - len(other)) > 1:
        return False
    pairs = enumerate(zip(one, other, strict=False))
    start = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    left, right = one[start:], other[start:]
    swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
    return swapped or left[1:] == right[1:] or left[1:] == right or left == right[1:]
