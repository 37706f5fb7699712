"""The configuration sources that the suite runs on. A new adapter is one class and one line in `ADAPTERS`."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from uuid import uuid4

from azure.appconfiguration import ConfigurationSetting
from azure.appconfiguration.aio import AzureAppConfigurationClient

from lucius.adapters.configs.app_configuration import AppConfiguration, open_store
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.configs.key_values import SENTINEL, key_values
from lucius.core.plan import RetryPolicy
from lucius.dev.standins.app_configuration import StandIn
from lucius.ports.config import ConfigSource

OUTAGE = "outage"
"""The source can be cut off from where its documents are."""


@dataclass
class Harness:
    publish: Callable[[Mapping[str, Any]], Awaitable[None]]
    """Make this the whole content of the source, as one change."""
    open: Callable[[], Awaitable[ConfigSource]]
    go_down: Callable[[], Awaitable[None]]
    come_back: Callable[[], Awaitable[None]]


Body = Callable[[Harness], Awaitable[None]]


class Adapter(Protocol):
    name: str
    capabilities: frozenset[str]

    def run(self, body: Body) -> None: ...


class FilesAdapter:
    """An outage is a folder that is gone for a while."""

    name = "files"
    capabilities = frozenset({OUTAGE})

    def run(self, body: Body) -> None:
        with TemporaryDirectory() as folder:
            (Path(folder) / "protocols").mkdir()
            asyncio.run(self._run(body, Path(folder) / "protocols"))

    async def _run(self, body: Body, folder: Path) -> None:
        versions, away = count(1), folder.with_name("away")

        async def publish(content: Mapping[str, Any]) -> None:
            path, version = folder / "all.json", next(versions)
            path.write_text(json.dumps(content))
            os.utime(path, ns=(version, version))

        async def opened() -> ConfigSource:
            return FileConfig(folder)

        async def go_down() -> None:
            os.rename(folder, away)

        async def come_back() -> None:
            os.rename(away, folder)

        await body(Harness(publish, opened, go_down, come_back))


class AppConfigurationAdapter:
    """The real SDK before the stand-in, or before LUCIUS_APPCONFIG_CONNECTION where it is set."""

    name = "app configuration"

    def __init__(self, label: str) -> None:
        self._given = os.environ.get("LUCIUS_APPCONFIG_CONNECTION", "")
        self._label = label
        self.name = f"app configuration {label}".strip()
        self.capabilities = frozenset() if self._given else frozenset({OUTAGE})

    def run(self, body: Body) -> None:
        asyncio.run(self._run(body))

    async def _run(self, body: Body) -> None:
        async with AsyncExitStack() as stack:
            stand_in = StandIn()
            if not self._given:
                await stack.enter_async_context(stand_in)
            connection = self._given or stand_in.connection_string
            label = f"{self._label}-{uuid4().hex[:8]}" if self._given else self._label
            writer = await stack.enter_async_context(
                AzureAppConfigurationClient.from_connection_string(connection)
            )
            written: set[str] = set()

            async def publish(content: Mapping[str, Any]) -> None:
                wanted = key_values(content) | {SENTINEL: uuid4().hex}
                for key in written - wanted.keys():
                    await writer.delete_configuration_setting(key, label=label or None)
                for key, value in wanted.items():
                    entry = ConfigurationSetting(key=key, value=value, label=label or None)
                    await writer.set_configuration_setting(entry)
                written.update(wanted)

            async def opened() -> ConfigSource:
                store = open_store(connection, label, retry_total=0)
                source = await AppConfiguration.opened(store, lambda stored: RetryPolicy())
                stack.push_async_callback(source.close)
                return source

            await body(Harness(publish, opened, stand_in.stop, stand_in.start))


ADAPTERS: tuple[Adapter, ...] = (
    FilesAdapter(),
    AppConfigurationAdapter("suite"),
    *(() if os.environ.get("LUCIUS_APPCONFIG_CONNECTION") else (AppConfigurationAdapter(""),)),
)
