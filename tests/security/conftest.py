"""One issuer for all tests of a process: making its keys takes a moment."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.world import World
from tests.security.issuer import Issuer, fresh_keys


@pytest.fixture(scope="session")
def private_keys() -> dict[str, Any]:
    return fresh_keys()


@pytest.fixture
def issuer(private_keys: dict[str, Any]) -> Iterator[Issuer]:
    with Issuer(private_keys).running() as issuer:
        yield issuer


@pytest.fixture
def world() -> World:
    return World()
