"""The configuration from Azure App Configuration: cached, and read again when the sentinel changes.

A change that is not valid is reported and the reading before it stays in force. So it does while
the service is down.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple, Self

from lucius.configs.catalogs import build_catalog
from lucius.configs.key_value_store import KeyValueStore, open_store
from lucius.configs.key_values import (
    SENTINEL,
    KeyValue,
    behind_sentinel,
    documents_of,
    marks_of,
    overlaid,
    settings_of,
)
from lucius.core.errors import ConfigUnavailableError, LuciusError
from lucius.core.plan import RetryPolicy
from lucius.ports.config import Catalog

log = logging.getLogger("lucius.config")

PolicyOf = Callable[[Mapping[str, str]], RetryPolicy]
"""The retries and timeouts that follow from the settings that are stored. Raises LuciusError."""
Marks = frozenset[tuple[str, str]]


class ConfigHalfChangedError(LuciusError):
    """Somebody is in the middle of a change, or has forgotten the sentinel."""


class _StoredReading(NamedTuple):
    marks: Marks
    catalog: Catalog


class AppConfiguration:
    """Implements `lucius.ports.config.ConfigSource`; `await AppConfiguration.opened(...)` makes one."""

    pause = timedelta(seconds=30)
    """Each look is a request that is paid for."""

    def __init__(self, store: KeyValueStore, policy: PolicyOf, first: _StoredReading) -> None:
        self._store = store
        self._policy = policy
        self._marks, self._catalog = first
        self._down: str | None = None
        self._invalid: str | None = None

    @classmethod
    async def opened(cls, store: KeyValueStore, policy: PolicyOf) -> Self:
        """Raises LuciusError: a process without any valid reading does not start."""
        try:
            return cls(store, policy, await _read(store, policy))
        except BaseException:
            await store.close()
            raise

    def catalog(self) -> Catalog:
        return self._catalog

    def fault(self) -> str | None:
        return "\n".join(filter(None, (self._down, self._invalid))) or None

    async def refresh(self) -> bool:
        """One request where nothing has changed."""
        try:
            marks = await self._store.marks()
            changed = marks != self._marks and await self._reread()
        except ConfigUnavailableError as error:
            self._report_down(str(error))
            return False
        except LuciusError as error:
            self._report_invalid(str(error))
            changed = False
        if self._down is not None:
            log.info("App Configuration answers again")
        self._down = None
        return changed

    async def _reread(self) -> bool:
        """A reading with keys that are newer than the sentinel may have half of the next change."""
        found = await self._store.read()
        if late := behind_sentinel(found):
            raise ConfigHalfChangedError(
                f"changed after {SENTINEL}: {', '.join(late)}. The change before them is not in force"
                f" either: change {SENTINEL} once all keys are as they should be"
            )
        self._marks = marks_of(found)  # what is not valid is not read again until it changes
        catalog = _catalog(found, self._policy)
        self._invalid = None
        changed = catalog.version != self._catalog.version
        self._catalog = catalog
        return changed

    def _report_down(self, reason: str) -> None:
        if self._down is None:
            version = self._catalog.version
            log.error("%s. Version %s of the configuration stays in force", reason, version)
        self._down = reason

    def _report_invalid(self, reason: str) -> None:
        if reason != self._invalid:
            log.error("the changed configuration is not valid and not in force:\n%s", reason)
        self._invalid = reason

    async def close(self) -> None:
        await self._store.close()


async def _read(store: KeyValueStore, policy: PolicyOf) -> _StoredReading:
    found = await store.read()
    late = behind_sentinel(found)
    if late:
        log.warning("changed after %s, and in use all the same: %s", SENTINEL, ", ".join(late))
    return _StoredReading(marks_of(found), _catalog(found, policy))


def _catalog(found: list[KeyValue], policy: PolicyOf) -> Catalog:
    entries = overlaid(found)
    return build_catalog(documents_of(entries), policy(settings_of(entries)))


async def open_app_configuration(connection: str, label: str, policy: PolicyOf) -> AppConfiguration:
    return await AppConfiguration.opened(open_store(connection, label), policy)


async def read_settings(connection: str, label: str) -> dict[str, str]:
    """The `LUCIUS_*` settings that are stored, by name."""
    store = open_store(connection, label)
    try:
        return settings_of(overlaid(await store.read()))
    finally:
        await store.close()
