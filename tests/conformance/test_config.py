"""What every configuration source must do: valid readings only, kept until a better one is there."""

from collections.abc import Mapping
from typing import Any

import pytest

from lucius.core.errors import LuciusError
from lucius.core.plan import Mode
from lucius.ports.config import TenantConfig
from tests.conformance.config_registry import ADAPTERS, OUTAGE, Harness
from tests.conformance.on_every import on_every

on_every_config = on_every(ADAPTERS)
on_every_that_fails = on_every(ADAPTERS, OUTAGE)


def content(*request_types: str, **more: Any) -> Mapping[str, Any]:
    """One protocol for each request type, of one step."""
    return {
        "step_types": {"A": {"service": "a", "max_attempts": 5}},
        "protocols": [
            {"request_type": name, "protocol_id": name.lower().replace("->", "_"), "steps": ["A"]}
            for name in request_types
        ],
        **more,
    }


BROKEN: Mapping[str, Any] = {**content("ONE"), "step_types": {"B": {"service": "b"}}}
"""Its protocol names a step type that is not there."""


@on_every_config
async def test_everything_that_is_defined_is_in_the_catalog(h: Harness) -> None:
    tenants = {"acme/eu": {"mode": "BURST", "burst_allowed": True, "max_inflight": 7}}
    await h.publish(content("ONE->TWO", "X", defaults={"burst_allowed": False}, tenants=tenants))
    catalog = (await h.open()).catalog()
    assert set(catalog.protocols) == {"ONE->TWO", "X"}
    (step,) = catalog.protocols["X"].steps
    assert (step.step_type, step.service, step.policy.max_attempts) == ("A", "a", 5)
    assert catalog.protocols["X"].protocol_id == "x"
    assert not catalog.burst_allowed
    assert catalog.tenants == {"acme/eu": TenantConfig(Mode.BURST, True, 7)}


@on_every_config
async def test_a_source_without_a_valid_reading_does_not_open(h: Harness) -> None:
    with pytest.raises(LuciusError):
        await h.open()
    await h.publish(BROKEN)
    with pytest.raises(LuciusError, match="there is no step type A"):
        await h.open()


@on_every_config
async def test_a_change_is_in_force_after_refresh(h: Harness) -> None:
    await h.publish(content("ONE", "GONE"))
    source = await h.open()
    before = source.catalog()
    await h.publish(content("ONE", "TWO"))
    assert source.catalog() is before
    assert await source.refresh()
    assert set(source.catalog().protocols) == {"ONE", "TWO"}
    assert source.catalog().version != before.version


@on_every_config
async def test_nothing_changed_keeps_the_very_same_reading(h: Harness) -> None:
    await h.publish(content("ONE"))
    source = await h.open()
    before = source.catalog()
    assert not await source.refresh()
    assert source.catalog() is before


@on_every_config
async def test_the_same_content_written_again_is_no_new_version(h: Harness) -> None:
    await h.publish(content("ONE"))
    source = await h.open()
    before = source.catalog().version
    await h.publish(content("ONE"))
    assert not await source.refresh()
    assert source.catalog().version == before


@on_every_config
async def test_a_bad_change_is_told_and_not_used(h: Harness) -> None:
    await h.publish(content("ONE"))
    source = await h.open()
    before = source.catalog()
    await h.publish(BROKEN)
    for _ in range(2):
        assert not await source.refresh()
        assert source.catalog() is before
        assert "there is no step type A" in str(source.fault())


@on_every_config
async def test_what_was_mended_is_used_and_the_fault_forgotten(h: Harness) -> None:
    await h.publish(content("ONE"))
    source = await h.open()
    await h.publish(BROKEN)
    await source.refresh()
    await h.publish(content("TWO"))
    assert await source.refresh()
    assert source.fault() is None
    assert set(source.catalog().protocols) == {"TWO"}


@on_every_that_fails
async def test_the_last_good_reading_outlives_an_outage(h: Harness) -> None:
    await h.publish(content("ONE"))
    source = await h.open()
    before = source.catalog()
    await h.go_down()
    for _ in range(2):
        assert not await source.refresh()
        assert source.catalog() is before
        assert source.fault() is not None
    await h.come_back()
    await source.refresh()
    assert source.fault() is None
    assert source.catalog().version == before.version


@on_every_that_fails
async def test_a_change_that_was_made_in_an_outage_is_found_after_it(h: Harness) -> None:
    await h.publish(content("ONE"))
    source = await h.open()
    await h.go_down()
    await source.refresh()
    await h.come_back()
    await h.publish(content("TWO"))
    assert await source.refresh()
    assert set(source.catalog().protocols) == {"TWO"}
    assert source.fault() is None
