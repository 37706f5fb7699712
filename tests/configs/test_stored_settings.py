"""Settings from App Configuration: behind the environment, without secrets, some of them read again."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from lucius.adapters.configs.app_configuration import AppConfiguration
from lucius.adapters.configs.key_values import SENTINEL, SETTINGS
from lucius.app.adapters import open_config
from lucius.app.building import build
from lucius.app.settings import SettingsError
from lucius.app.upkeep import settings_with_stored
from lucius.dev.standins.app_configuration import StandIn


@pytest.fixture
async def store() -> AsyncIterator[StandIn]:
    async with StandIn() as stand_in:
        stand_in.put("lucius/step_types/A", json.dumps({"service": "a"}))
        stand_in.put("lucius/protocols/one", json.dumps({"request_type": "ONE", "steps": ["A"]}))
        stand_in.put(SENTINEL, "1")
        yield stand_in


def environ(store: StandIn, **more: str) -> dict[str, str]:
    named = {"CONFIG_SOURCE": "appconfig", "APPCONFIG_CONNECTION": store.connection_string, **more}
    return {f"LUCIUS_{name}": text for name, text in named.items()}


async def test_a_stored_setting_counts_where_nobody_says_otherwise(store: StandIn) -> None:
    for name in ("NATS_URL", "QUITE_ELSE", "MAX_INFLIGHT", "SLA_ACTION"):
        store.put(f"{SETTINGS}LUCIUS_{name}", "fail" if name == "SLA_ACTION" else "7")
    found = await settings_with_stored(
        {"LUCIUS_SLA_ACTION": "escalate"}, environ(store, NATS_URL="mine")
    )
    assert (found.nats_url, found.max_inflight, found.sla_action) == ("mine", 7, "escalate")
    sources = [
        found.sources[f"LUCIUS_{name}"] for name in ("NATS_URL", "MAX_INFLIGHT", "SLA_ACTION")
    ]
    assert sources == ["environment", "app configuration", "command line"]
    assert found.sources["LUCIUS_AUTH"] == "default"
    assert found.warnings == ("unknown setting LUCIUS_QUITE_ELSE",)


async def test_a_label_chooses_among_the_stored(store: StandIn) -> None:
    store.put(f"{SETTINGS}LUCIUS_MAX_INFLIGHT", "7")
    store.put(f"{SETTINGS}LUCIUS_MAX_INFLIGHT", "8", "prod")
    labelled = await settings_with_stored({}, environ(store, SYSTEM="prod"))
    assert labelled.max_inflight == 8
    assert (await settings_with_stored({}, environ(store))).max_inflight == 7


async def test_a_bad_stored_value_stops_the_start(store: StandIn) -> None:
    store.put(f"{SETTINGS}LUCIUS_MAX_INFLIGHT", "many")
    with pytest.raises(SettingsError, match="LUCIUS_MAX_INFLIGHT: must be a whole number"):
        await settings_with_stored({}, environ(store))


@pytest.mark.parametrize("name", ["WEBHOOK_SECRET", "CALLBACK_KEYS", "SYSTEM", "DATA_DIR"])
async def test_secrets_and_what_each_process_has_of_its_own_are_refused(
    store: StandIn, name: str
) -> None:
    store.put(f"{SETTINGS}LUCIUS_{name}", "k1:0123456789abcdef")
    with pytest.raises(SettingsError, match=f"LUCIUS_{name}: is a .*set the variable") as raised:
        await settings_with_stored({}, environ(store))
    assert "0123456789abcdef" not in str(raised.value)


# -- reading again ---------------------------------------------------------------------------


async def test_stored_retries_and_timeouts_count_for_jobs_from_the_refresh_on(
    store: StandIn,
) -> None:
    given = environ(store, ACK_TIMEOUT_SECONDS="5")
    source = await open_config(await settings_with_stored({}, given))
    assert source.catalog().protocols["ONE"].steps[0].policy.max_attempts == 3
    store.put(f"{SETTINGS}LUCIUS_MAX_ATTEMPTS", "9")
    store.put(f"{SETTINGS}LUCIUS_ACK_TIMEOUT_SECONDS", "77")
    store.put(SENTINEL, "2")
    assert await source.refresh()
    policy = source.catalog().protocols["ONE"].steps[0].policy
    assert policy.max_attempts == 9
    assert policy.ack_timeout == timedelta(seconds=5), "the environment goes first"
    store.delete(f"{SETTINGS}LUCIUS_MAX_ATTEMPTS")
    store.put(SENTINEL, "3")
    assert await source.refresh()
    assert source.catalog().protocols["ONE"].steps[0].policy.max_attempts == 3
    await source.close()


async def test_a_stored_setting_that_becomes_bad_is_told_and_not_used(store: StandIn) -> None:
    source = await open_config(await settings_with_stored({}, environ(store)))
    store.put(f"{SETTINGS}LUCIUS_MAX_ATTEMPTS", "none")
    store.put(SENTINEL, "2")
    assert not await source.refresh()
    assert "LUCIUS_MAX_ATTEMPTS" in str(source.fault())
    await source.close()


# -- a process -------------------------------------------------------------------------------


async def test_a_runtime_takes_its_protocols_from_app_configuration(
    store: StandIn, tmp_path: Path
) -> None:
    options = {"LUCIUS_DATA_DIR": str(tmp_path / "data")}
    runtime = await build(await settings_with_stored(options, environ(store)))
    async with runtime.running():
        assert set(runtime.config.catalog().protocols) == {"ONE"}
    assert store.requests["GET /kv 200"] == 6, "three for the settings and three for the catalog"


async def test_a_running_process_takes_up_a_change(
    store: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"LUCIUS_DATA_DIR": str(tmp_path / "data")}
    monkeypatch.setattr(AppConfiguration, "pause", timedelta(milliseconds=10))
    runtime = await build(await settings_with_stored(options, environ(store)))
    refresh, taken_up = runtime.config.refresh, asyncio.Event()

    async def told() -> bool:
        changed = await refresh()
        if changed:
            taken_up.set()
        return changed

    monkeypatch.setattr(runtime.config, "refresh", told)
    async with runtime.running():
        store.put("lucius/protocols/two", json.dumps({"request_type": "TWO", "steps": ["A"]}))
        store.put(SENTINEL, "2")
        await asyncio.wait_for(taken_up.wait(), 30)
        assert set(runtime.config.catalog().protocols) == {"ONE", "TWO"}
