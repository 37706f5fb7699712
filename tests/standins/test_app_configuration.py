"""The stand-in for App Configuration: the real SDK is understood, and nobody else is served."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from azure.appconfiguration import ConfigurationSetting
from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core import MatchConditions
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from lucius.core.errors import ProtocolError
from lucius.dev.standins.app_configuration import Followed, StandIn


@asynccontextmanager
async def connected(
    stand_in: StandIn,
) -> AsyncIterator[AzureAppConfigurationClient]:
    async with (
        stand_in,
        AzureAppConfigurationClient.from_connection_string(
            stand_in.connection_string, retry_total=0
        ) as client,
    ):
        yield client


async def test_entries_are_written_read_and_deleted_by_key_and_label() -> None:
    async with connected(StandIn()) as client:
        for label in (None, "prod"):
            entry = ConfigurationSetting(key="a/b c", value=f"of {label}", label=label)
            await client.set_configuration_setting(entry)
        found = await client.get_configuration_setting("a/b c", label="prod")
        assert found is not None
        assert (found.value, found.label) == ("of prod", "prod")
        await client.delete_configuration_setting("a/b c", label="prod")
        with pytest.raises(ResourceNotFoundError):
            await client.get_configuration_setting("a/b c", label="prod")
        left = client.list_configuration_settings(key_filter="*")
        assert [each.value async for each in left] == ["of None"]


async def test_conditions_hold() -> None:
    async with connected(StandIn()) as client:
        first = await client.add_configuration_setting(ConfigurationSetting(key="a", value="1"))
        with pytest.raises(ResourceExistsError):
            await client.add_configuration_setting(ConfigurationSetting(key="a", value="2"))
        same = MatchConditions.IfNotModified
        first.value = "3"
        await client.set_configuration_setting(first, match_condition=same)
        with pytest.raises(ResourceModifiedError):
            await client.set_configuration_setting(first, match_condition=same)


async def test_filters_take_lists_stars_and_escapes() -> None:
    stand_in = StandIn()
    for key in ("a/1", "a/2", "b", "c*"):
        stand_in.put(key, "")
    async with connected(stand_in) as client:

        async def keys(key_filter: str) -> list[str]:
            found = client.list_configuration_settings(key_filter=key_filter)
            return [each.key async for each in found]

        assert await keys("a/*") == ["a/1", "a/2"]
        assert await keys("b,a/2") == ["a/2", "b"]
        assert await keys(r"c\*") == ["c*"]
        assert await keys("a") == []


async def test_what_is_not_signed_is_refused() -> None:
    async with StandIn() as stand_in, httpx.AsyncClient(base_url=stand_in.endpoint) as client:
        assert (await client.get("/kv")).status_code == 401
        odd = {"Authorization": "HMAC-SHA256 Credential=stand-in&SignedHeaders=host&Signature="}
        assert (await client.get("/kv", headers=odd)).status_code == 401


@pytest.mark.parametrize("minutes", [-16, 16])
async def test_an_old_signature_is_refused(minutes: int) -> None:
    stand_in = StandIn(now=lambda: datetime.now(UTC) + timedelta(minutes=minutes))
    async with connected(stand_in) as client:
        with pytest.raises(ClientAuthenticationError, match="out of date"):
            await client.get_configuration_setting("a")


NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
SECRET = b"a secret of the test"
JAVASCRIPT = "/kv?api-version=2026-04-01&key=*"
"""How Microsoft's SDK for JavaScript asks for all entries."""


async def signed(date: str, names: str = "x-ms-date;host;x-ms-content-sha256") -> httpx.Response:
    """The answer to a request that has the headers of the SDK for JavaScript, with this date."""
    async with (
        StandIn(secret=SECRET, now=lambda: NOON) as stand_in,
        httpx.AsyncClient(base_url=stand_in.endpoint) as client,
    ):
        host = stand_in.endpoint.removeprefix("http://")
        content = base64.b64encode(hashlib.sha256(b"").digest()).decode()
        values = {"x-ms-date": date, "date": date, "host": host, "x-ms-content-sha256": content}
        own = {name: values[name] for name in names.split(";")}
        text = f"GET\n{JAVASCRIPT}\n{';'.join(own.values())}"
        signature = base64.b64encode(hmac.new(SECRET, text.encode(), "sha256").digest()).decode()
        credential = f"HMAC-SHA256 Credential=stand-in&SignedHeaders={names}&Signature={signature}"
        return await client.get(JAVASCRIPT, headers={**own, "Authorization": credential})


@pytest.mark.parametrize(
    "date",
    [
        "Wed, 18 Nov 2026 12:00:00 GMT",
        "Wednesday, 18-Nov-26 12:00:00 GMT",
        "Wed Nov 18 12:00:00 2026",
        "Nov, 18 2026 12:00:00.000000 GMT",
    ],
    ids=["JavaScript and .NET", "RFC 850", "asctime", "Python"],
)
async def test_a_date_is_read_in_each_form_that_clients_write(date: str) -> None:
    answer = await signed(date)
    assert answer.status_code == 200, answer.text
    assert (await signed(date, "date;host;x-ms-content-sha256")).status_code == 200


@pytest.mark.parametrize(
    ("date", "said"),
    [("Wed, 18 Nov 2026 12:16:00 GMT", "out of date"), ("today", "not a date"), ("", "not a date")],
)
async def test_a_date_that_is_none_or_too_far_off_is_refused(date: str, said: str) -> None:
    answer = await signed(date)
    assert (answer.status_code, said in answer.json()["detail"]) == (401, True)


@pytest.mark.parametrize("names", ["host;x-ms-content-sha256", "x-ms-date;host", "date"])
async def test_date_host_and_content_must_be_signed(names: str) -> None:
    answer = await signed("Wed, 18 Nov 2026 12:00:00 GMT", names)
    assert (answer.status_code, "must include" in answer.json()["detail"]) == (401, True)


async def test_what_it_does_not_know_is_said() -> None:
    async with connected(StandIn()) as client:
        with pytest.raises(HttpResponseError) as raised:
            await client.get_snapshot("one")
        assert raised.value.status_code == 501


PROTOCOL = """
step_types: {{{name}: {{service: s}}}}
protocols: [{{request_type: {name}, protocol_id: p, steps: [{name}]}}]
"""


def test_files_are_held_as_they_change_and_a_bad_change_is_not(tmp_path: Path) -> None:
    stand_in = StandIn()
    followed = Followed(stand_in, [tmp_path])
    (tmp_path / "a.yaml").write_text(PROTOCOL.format(name="ONE"))
    followed.look()
    sentinels = [stand_in.entries["lucius/sentinel", ""].value]
    followed.look()
    assert stand_in.entries["lucius/sentinel", ""].value == sentinels[0], "nothing has changed"
    (tmp_path / "b.yaml").write_text(": [")
    with pytest.raises(ProtocolError):
        followed.look()
    assert ("lucius/step_types/ONE", "") in stand_in.entries, "what was held is held on"
    (tmp_path / "b.yaml").unlink()
    (tmp_path / "a.yaml").write_text(PROTOCOL.format(name="OTHER"))
    followed.look()
    assert ("lucius/step_types/ONE", "") not in stand_in.entries
    assert ("lucius/step_types/OTHER", "") in stand_in.entries
    assert stand_in.entries["lucius/sentinel", ""].value not in sentinels
