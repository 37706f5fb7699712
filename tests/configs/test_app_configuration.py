"""What is particular to App Configuration: the sentinel, labels, keys, and who may read."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from azure.core.exceptions import ClientAuthenticationError

from lucius.adapters.configs import app_configuration
from lucius.adapters.configs.app_configuration import (
    AppConfiguration,
    ConfigConnectionError,
    open_store,
)
from lucius.adapters.configs.key_values import SENTINEL
from lucius.core.errors import ConfigUnavailableError, ProtocolError
from lucius.core.plan import RetryPolicy
from lucius.dev.standins.app_configuration import StandIn

STEP = json.dumps({"service": "a"})
PROTOCOL = json.dumps({"request_type": "ONE", "steps": ["A"]})


class Watched(StandIn):
    """Does something between two answers to a listing of everything."""

    between: Callable[[], object] | None = None

    async def _list(self, request: web.Request) -> web.Response:
        answer = await super()._list(request)
        if request.query["key"] == "lucius/*" and self.between is not None:
            self.between()
        return answer


@pytest.fixture
async def store() -> AsyncIterator[Watched]:
    async with Watched() as stand_in:
        stand_in.put("lucius/step_types/A", STEP)
        stand_in.put("lucius/protocols/one", PROTOCOL)
        stand_in.put(SENTINEL, "1")
        yield stand_in


async def opened(stand_in: StandIn, label: str = "") -> AppConfiguration:
    connected = open_store(stand_in.connection_string, label, retry_total=0)
    return await AppConfiguration.opened(connected, lambda stored: RetryPolicy())


# -- the sentinel ----------------------------------------------------------------------------


async def test_nothing_counts_before_the_sentinel_changes(store: Watched) -> None:
    source = await opened(store)
    store.put("lucius/tenants/acme", '{"max_inflight": 1}')
    assert not await source.refresh()
    assert source.catalog().tenants == {}
    store.put(SENTINEL, "2")
    assert await source.refresh()
    assert source.catalog().tenants["acme"].max_inflight == 1
    await source.close()


async def test_a_look_at_what_has_not_changed_is_one_request(store: Watched) -> None:
    source = await opened(store)
    before = store.requests.total()
    await source.refresh()
    assert store.requests.total() == before + 1
    await source.close()


async def test_a_change_between_two_pages_is_seen_whole_or_not_at_all(store: Watched) -> None:
    """Tenants fill several pages. Halfway, all of them and the sentinel change."""
    for number in range(150):
        store.put(f"lucius/tenants/t{number:03}", '{"max_inflight": 1}')
    store.put(SENTINEL, "2")

    def change() -> None:
        store.between = None
        for number in range(150):
            store.put(f"lucius/tenants/t{number:03}", '{"max_inflight": 2}')
        store.put(SENTINEL, "3")

    store.between = change
    source = await opened(store)
    assert {each.max_inflight for each in source.catalog().tenants.values()} == {2}
    assert len(source.catalog().tenants) == 150
    assert store.requests["GET /kv 200"] > 4, "it was read twice"
    await source.close()


async def test_a_change_that_somebody_has_begun_waits_for_its_own_sentinel(store: Watched) -> None:
    """The change before it waits with it: nobody can tell which of the keys belong together."""
    source = await opened(store)
    store.put("lucius/tenants/acme", '{"max_inflight": 1}')
    store.put(SENTINEL, "2")
    store.put("lucius/tenants/acme", '{"max_inflight": 2}')
    for _ in range(2):
        assert not await source.refresh()
        assert "changed after lucius/sentinel: lucius/tenants/acme" in str(source.fault())
        assert source.catalog().tenants == {}
    store.put("lucius/tenants/other", "{}")
    store.put(SENTINEL, "3")
    assert await source.refresh()
    assert source.fault() is None
    assert source.catalog().tenants["acme"].max_inflight == 2
    assert "other" in source.catalog().tenants
    await source.close()


async def test_a_sentinel_that_never_rests_is_an_outage_and_no_half_reading(
    store: Watched,
) -> None:
    source = await opened(store)
    store.between = partial(store.put, SENTINEL, "again")
    store.put(SENTINEL, "2")
    assert not await source.refresh()
    assert "faster than" in str(source.fault())
    store.between = None
    await source.refresh()
    assert source.fault() is None
    await source.close()


async def test_a_sentinel_that_is_gone_is_told_and_its_return_noticed(store: Watched) -> None:
    source = await opened(store)
    store.delete(SENTINEL)
    assert not await source.refresh()
    assert f"no key {SENTINEL}" in str(source.fault())
    store.put("lucius/tenants/acme", "{}")
    store.put(SENTINEL, "1")
    assert await source.refresh()
    assert source.fault() is None
    await source.close()


async def test_at_the_start_keys_that_are_newer_than_the_sentinel_are_named(
    store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("lucius/tenants/acme", "{}")
    with caplog.at_level(logging.WARNING, "lucius.config"):
        await (await opened(store)).close()
    assert "changed after lucius/sentinel" in caplog.text
    assert "lucius/tenants/acme" in caplog.text
    assert "lucius/step_types/A" not in caplog.text


# -- labels ----------------------------------------------------------------------------------


async def test_a_label_takes_the_place_of_no_label_and_no_other_label_counts(
    store: Watched,
) -> None:
    for label, most in (("", 1), ("prod", 2), ("prod2", 3), ("pro", 4)):
        store.put("lucius/tenants/acme", json.dumps({"max_inflight": most}), label)
        store.put(f"lucius/tenants/of-{label or 'all'}", "{}", label)
    store.put(SENTINEL, "2")
    source = await opened(store, "prod")
    assert source.catalog().tenants["acme"].max_inflight == 2
    assert set(source.catalog().tenants) == {"acme", "of-all", "of-prod"}
    await source.close()


@pytest.mark.parametrize("label", ["", "prod"])
async def test_either_sentinel_puts_changes_into_force(store: Watched, label: str) -> None:
    source = await opened(store, "prod")
    store.put("lucius/tenants/acme", "{}", label)
    store.put(SENTINEL, "2", label)
    assert await source.refresh()
    await source.close()


# -- keys ------------------------------------------------------------------------------------

VAULT = "application/vnd.microsoft.appconfig.keyvaultref+json;charset=utf-8"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"key": "lucius/tenant/acme", "value": "{}"}, "lucius/tenant/acme: no such key"),
        ({"key": "lucius/tenants/", "value": "{}"}, "no such key"),
        ({"key": "lucius/tenants/acme", "value": "{"}, "lucius/tenants/acme: not valid JSON"),
        ({"key": "lucius/tenants/acme", "value": "[]"}, "must be a JSON object"),
        ({"key": "lucius/tenants/acme", "value": '{"a": 1, "a": 2}'}, "a is there twice"),
        ({"key": "lucius/tenants/acme", "value": '{"most": 1}'}, "/tenants/acme: .*most"),
        ({"key": "lucius/tenants/acme", "value": "{}", "content_type": VAULT}, "Key Vault"),
        ({"key": "lucius/settings/LUCIUS_X", "value": "{}", "content_type": VAULT}, "Key Vault"),
        ({"key": "lucius/protocols/two", "value": '{"protocol_id": "x"}'}, "its key says two"),
        (
            {"key": "lucius/defaults", "value": '{"mode": "FAST"}'},
            "lucius/defaults: /defaults/mode",
        ),
    ],
)
async def test_a_bad_entry_is_named_with_its_key_and_reason(
    store: Watched, entry: Mapping[str, Any], reason: str
) -> None:
    store.put(**entry)
    with pytest.raises(ProtocolError, match=reason):
        await opened(store)


async def test_every_bad_entry_is_named_at_once_with_its_label(store: Watched) -> None:
    for name in ("one", "two"):
        store.put(f"lucius/tenants/{name}", "?", "prod")
    with pytest.raises(ProtocolError) as raised:
        await opened(store, "prod")
    assert "lucius/tenants/one (label prod)" in str(raised.value)
    assert "lucius/tenants/two (label prod)" in str(raised.value)


# -- the connection --------------------------------------------------------------------------


async def test_a_wrong_access_key_is_refused_and_told(store: Watched) -> None:
    async with StandIn() as other:
        secret = other.connection_string.rpartition("Secret=")[2]
    wrong = store.connection_string.rpartition("Secret=")[0] + f"Secret={secret}"
    with pytest.raises(ConfigUnavailableError, match="current access key") as raised:
        await AppConfiguration.opened(open_store(wrong), lambda stored: RetryPolicy())
    assert secret not in str(raised.value)


async def test_a_service_that_is_down_at_the_start_is_told() -> None:
    async with StandIn() as stand_in:
        pass
    with pytest.raises(ConfigUnavailableError, match="does not answer"):
        await opened(stand_in)


@pytest.mark.parametrize(
    "connection", ["myconfig", "http://x.azconfig.io", "Endpoint=https://x.azconfig.io", "a=b;c=d"]
)
def test_what_is_no_connection_is_refused_by_its_setting(connection: str) -> None:
    with pytest.raises(ConfigConnectionError, match="LUCIUS_APPCONFIG_CONNECTION is neither"):
        open_store(connection)


class NobodyHere:
    """The identity of a process that has none."""

    closed = False

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        raise ClientAuthenticationError(f"no identity for {scopes[0]}")

    async def close(self) -> None:
        NobodyHere.closed = True


async def test_an_endpoint_is_read_with_the_identity_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app_configuration, "DefaultAzureCredential", NobodyHere)
    connected = open_store("https://name.azconfig.io", retry_total=0)
    with pytest.raises(ConfigUnavailableError, match=r"Data Reader: no identity for https://"):
        await AppConfiguration.opened(connected, lambda stored: RetryPolicy())
    assert NobodyHere.closed
