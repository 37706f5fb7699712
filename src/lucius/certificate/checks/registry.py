"""How a check is declared: what the contract says, what to do when it is broken, and how it is looked at."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from lucius.certificate.trial import Trial

Look = Callable[[Trial], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """`promise`: what the contract says. `remedy`: what to do. `slow`: needs work that takes long.

    `apart`: works on fresh processes and does not load the shared one.
    `look` raises BrokenError with what was seen, or NotApplicableError.
    """

    name: str
    group: str
    promise: str
    remedy: str
    slow: bool
    apart: bool
    look: Look


CHECKS: Final[list[Check]] = []


def check(
    name: str, *, promise: str, remedy: str, slow: bool = False, apart: bool = False
) -> Callable[[Look], Look]:
    def declared(look: Look) -> Look:
        group = look.__module__.rpartition(".")[2]
        CHECKS.append(Check(name, group, promise, remedy, slow, apart, look))
        return look

    return declared
