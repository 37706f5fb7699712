"""What a load consists of: how much, how fast, for whom, and what is meant to fail."""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from lucius.core.errors import LuciusError

WORKS: Final = "works"
FAILURES: Final = ("missing", "poison", "cancel", "duplicate")
"""missing: the input is not there. poison: a payload that fails. cancel, duplicate: of the job."""


class LoadError(LuciusError):
    """A load that cannot be driven; the message names what is wrong."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A `rate` a second, or a `concurrency`. It ends after `jobs` or after `seconds`, whatever comes first.

    `tenants` are weights. `failures` are probabilities, by kind.
    """

    rate: float | None = None
    concurrency: int = 1
    jobs: int | None = None
    seconds: float | None = None
    tenants: Mapping[str, float] = field(default_factory=lambda: {"load": 1.0})
    failures: Mapping[str, float] = field(default_factory=dict)
    dice: random.Random = field(default_factory=random.Random)

    def tenant(self) -> str:
        return self.dice.choices(list(self.tenants), list(self.tenants.values()))[0]

    def kind(self) -> str:
        """Which failure the next job is meant to have, if any."""
        roll = self.dice.random()
        for kind, probability in self.failures.items():
            if roll < probability:
                return kind
            roll -= probability
        return WORKS


def parse_tenants(text: str) -> dict[str, float]:
    """`acme=3,globex=1`, or names alone."""
    found = _parts(text, "tenants", default=1.0)
    if not any(found.values()):
        raise LoadError(f"tenants {text!r}: give at least one of them a weight above 0")
    return found


def parse_failures(text: str, known: Collection[str] = FAILURES) -> dict[str, float]:
    """`missing=0.05,cancel=0.01`: probabilities that add up to 1 at most."""
    found = _parts(text, "failures")
    for name in found:
        if name not in known:
            raise LoadError(f"{name!r} is no failure that can be asked for: say {', '.join(known)}")
    if sum(found.values()) > 1:
        raise LoadError(
            f"failures {text!r}: add up to {sum(found.values()):g}, which is more than 1"
        )
    return found


def _parts(text: str, what: str, default: float | None = None) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        number = _number(value) if equals else default
        if not name or number is None or number < 0:
            raise LoadError(f"{what} {part.strip()!r}: must be NAME=NUMBER")
        if name in found:
            raise LoadError(f"{what}: {name} is given twice")
        found[name] = number
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None
