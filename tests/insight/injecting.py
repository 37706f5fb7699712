"""Injected faults, each with the cause that must be named. The faults themselves lie beside it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.insight.ward import Ward
from tests.virtual import VirtualLoop

Inject = Callable[[Ward], Awaitable[str]]
"""Brings the fault about; answers the job to ask about."""


@dataclass(frozen=True)
class InjectedFault:
    name: str
    cause: str
    inject: Inject
    running: tuple[str, ...] = ()
    ward: dict[str, Any] | None = None

    def ward_on(self, loop: VirtualLoop) -> Ward:
        return Ward(loop, **(self.ward or {}))


FAULTS: list[InjectedFault] = []


def fault(cause: str, *running: str, **ward: Any) -> Callable[[Inject], Inject]:
    def register(inject: Inject) -> Inject:
        name = inject.__name__.replace("_", " ")
        FAULTS.append(InjectedFault(name, cause, inject, running, ward))
        return inject

    return register
