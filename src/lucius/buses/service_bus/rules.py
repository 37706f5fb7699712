"""The rules of subscriptions, as SQL of Service Bus."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from lucius.core.errors import BusError
from lucius.ports.bus import Property

EVERYTHING: Final = "1=1"
STEP_TYPE: Final = "step_type"
LONGEST: Final = 1024
"""Length of the longest rule that Service Bus takes, in characters."""
_TAKEN: Final = re.compile(rf"\b{STEP_TYPE} IN \(((?:'(?:[^']|'')*'(?:, )?)+)\)")
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")


class RuleTooLongError(BusError):
    """More values than one rule can name."""


def taking(filters: Mapping[str, tuple[Property, ...]]) -> str:
    """The rule of a subscription: all filters must match. Without filters it takes every message."""
    if not filters:
        return EVERYTHING
    return _short(" AND ".join(f"{name} IN ({_listed(filters[name])})" for name in sorted(filters)))


def excluding(step_types: Iterable[str]) -> str:
    """The rule of a catch-all: every message that has none of these step types."""
    known = sorted(set(step_types))
    if not known:
        return EVERYTHING
    return _short(f"{STEP_TYPE} IS NULL OR {STEP_TYPE} NOT IN ({_listed(known)})")


def step_types_of(rule: str) -> list[str]:
    """The step types that a rule made by `taking` names."""
    return [
        text.replace("''", "'") for listed in _TAKEN.findall(rule) for text in _TEXT.findall(listed)
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
