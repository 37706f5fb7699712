"""Wiring is visible: every part is given its collaborators, and a forgotten one is an error."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, get_type_hints

import pytest

from lucius.bootstrap.outbox import Outbox, outbox
from lucius.bootstrap.runtime import Runtime
from lucius.gateway.bus_gateway import BusGateway

PARTS = [outbox, BusGateway, *get_type_hints(Outbox).values()]
OF_TESTS = {"listeners", "registry", "webhook_transport"}
"""What a runtime has of its own, unless a test looks on."""


def optional(part: Callable[..., Any]) -> set[str]:
    parameters = signature(part).parameters.values()
    return {each.name for each in parameters if each.default is not Parameter.empty}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_no_part_of_the_engine_does_without_a_collaborator(part: Callable[..., Any]) -> None:
    assert optional(part) == set()


def test_a_runtime_is_told_everything() -> None:
    assert optional(Runtime) <= OF_TESTS


def test_a_collaborator_with_a_default_is_found() -> None:
    def part(engine: str, guard: str = "none") -> None: ...

    assert optional(part) == {"guard"}
