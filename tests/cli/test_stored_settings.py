"""`lucius settings` with an App Configuration: the stand-in runs as a process of its own, as on a laptop."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from azure.appconfiguration import ConfigurationSetting
from azure.appconfiguration.aio import AzureAppConfigurationClient
from click.testing import CliRunner

from lucius.cli.main import main


@pytest.fixture
def connection() -> Iterator[str]:
    words = [sys.executable, "-m", "lucius.dev.standins.app_configuration"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


async def put(connection: str, name: str, value: str) -> None:
    async with AzureAppConfigurationClient.from_connection_string(connection) as client:
        entry = ConfigurationSetting(key=f"lucius/settings/{name}", value=value)
        await client.set_configuration_setting(entry)


def test_settings_say_that_they_come_from_app_configuration(connection: str) -> None:
    asyncio.run(put(connection, "LUCIUS_MAX_INFLIGHT", "42"))
    environ = {"LUCIUS_APPCONFIG_CONNECTION": connection}
    answer = CliRunner().invoke(main, ["settings", "--json"], env=environ)
    assert answer.exit_code == 0, answer.output
    rows = {row["name"]: row for row in json.loads(answer.stdout)["settings"]}
    found = rows["LUCIUS_MAX_INFLIGHT"]
    assert (found["value"], found["source"]) == ("42", "app configuration")
    assert rows["LUCIUS_APPCONFIG_CONNECTION"]["value"] == "********"


def test_a_stored_secret_is_refused_with_a_sentence(connection: str) -> None:
    asyncio.run(put(connection, "LUCIUS_API_KEY", "geheim"))
    environ = {"LUCIUS_APPCONFIG_CONNECTION": connection}
    answer = CliRunner().invoke(main, ["settings"], env=environ)
    assert answer.exit_code == 1
    assert "LUCIUS_API_KEY: is a secret and cannot come from App Configuration" in answer.output
    assert "geheim" not in answer.output
