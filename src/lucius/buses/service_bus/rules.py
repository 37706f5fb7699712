"""The rules of subscriptions, as SQL of Service Bus."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from lucius.core.errors import BusError
from lucius.ports.bus import ABSENT, Property

EVERYTHING: Final = "1=1"
STEP_TYPE: Final = "step_type"
POOL: Final = "pool"
LONGEST: Final = 1024
"""Length of the longest rule that Service Bus takes, in characters."""
_TAKEN: Final = re.compile(rf"\b{STEP_TYPE} IN \(((?:'(?:[^']|'')*'(?:, )?)+)\)")
_POOLS: Final = re.compile(rf"\b{POOL} IN \(((?:'(?:[^']|'')*'(?:, )?)+)\)")
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")


class RuleTooLongError(BusError):
    """More values than one rule can name."""


def taking(filters: Mapping[str, tuple[Property, ...]]) -> str:
    """The rule of a subscription: all filters must match. Without filters it takes every message."""
    if not filters:
        return EVERYTHING
    return _short(" AND ".join(_one_of(name, filters[name]) for name in sorted(filters)))


def _one_of(name: str, values: tuple[Property, ...]) -> str:
    named = [value for value in values if value != ABSENT]
    if len(named) == len(values):
        return f"{name} IN ({_listed(named)})"
    if not named:
        return f"{name} IS NULL"
    return f"({name} IS NULL OR {name} IN ({_listed(named)}))"


def excluding(step_types: Iterable[str], pools: Iterable[str] | None = None) -> str:
    """The rule of a catch-all: messages that have none of these step types, or a pool that nobody serves.

    `pools`: none where no rule tells pools apart.
    """
    known = sorted(set(step_types))
    if not known:
        return EVERYTHING
    rule = f"{STEP_TYPE} IS NULL OR {STEP_TYPE} NOT IN ({_listed(known)})"
    if pools is not None:
        served = sorted(set(pools))
        rule += f" OR {POOL} NOT IN ({_listed(served)})" if served else f" OR {POOL} IS NOT NULL"
    return _short(rule)


def step_types_of(rule: str) -> list[str]:
    """The step types that a rule made by `taking` names."""
    return _named(_TAKEN, rule)


def pools_of(rule: str) -> list[str] | None:
    """The pools that it names. None: it takes messages whatever their pool."""
    return _named(_POOLS, rule) if re.search(rf"\b{POOL} I[NS] ", rule) else None


def _named(listing: re.Pattern[str], rule: str) -> list[str]:
    return [
        text.replace("''", "'")
        for listed in listing.findall(rule)
        for text in _TEXT.findall(listed)
    ]


def _listed(values: Iterable[Property]) -> str:
    return ", ".join(
        str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
        for value in values
    )


def _short(rule: str) -> str:
    if len(rule) > LONGEST:
        raise RuleTooLongError(
            f"a rule of {len(rule)} characters is longer than the {LONGEST} that Service Bus takes:"
            f" {rule[:80]}... Use fewer or shorter step types"
        )
    return rule
