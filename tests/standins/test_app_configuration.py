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
from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core.exceptions import (
    ClientAuthenticationError,
)

from lucius.core.errors import ProtocolError
from lucius.standins.app_configuration import StandIn
from lucius.standins.followed_files import Followed


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
