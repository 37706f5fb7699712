"""The configuration from Azure App Configuration: cached, and read again when the sentinel changes.

A change that is not valid is reported and the reading before it stays in force. So it does while
the service is down.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self

from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.identity.aio import DefaultAzureCredential

from lucius.adapters.configs.catalogs import build_catalog
from lucius.adapters.configs.key_values import (
    PREFIX,
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

# An Azure App Configuration store, read as one consistent set of key-values.
#
# Vendor exceptions stop here.

NO_LABEL: Final = "\0"
"""As the service spells it in a filter."""
TRIES: Final = 5
"""How often a reading is begun again because the sentinel has changed meanwhile."""
OPTIONS: Final[dict[str, Any]] = {
    "retry_total": 2,
    "retry_backoff_factor": 0.2,
    "connection_timeout": 5,
    "read_timeout": 10,
}
"""A look is repeated with the next refresh, so the client gives up soon."""
CHATTY: Final = ("azure.core", "azure.identity")


class ConfigConnectionError(LuciusError):
    """LUCIUS_APPCONFIG_CONNECTION cannot be used."""


class KeyValueStore:
    """The entries below `lucius/` without a label, and those with the label that is given."""

    def __init__(
        self,
        client: AzureAppConfigurationClient,
        label: str = "",
        credential: DefaultAzureCredential | None = None,
    ) -> None:
        self._client = client
        self._credential = credential
        self._labels = f"{NO_LABEL},{_escaped(label)}" if label else NO_LABEL

    async def marks(self) -> frozenset[tuple[str, str]]:
        """Of the sentinels, in one request."""
        return marks_of(await self._list(SENTINEL))

    async def read(self) -> list[KeyValue]:
        """Everything, as it was between two changes of the sentinel."""
        before = await self.marks()
        for _ in range(TRIES):
            found = await self._list(PREFIX + "*")
            after = await self.marks()
            if before == marks_of(found) == after:
                return found
            before = after
        raise ConfigUnavailableError(f"{SENTINEL} changes faster than the keys can be read")

    async def _list(self, key_filter: str) -> list[KeyValue]:
        with mapped():
            pages = self._client.list_configuration_settings(
                key_filter=key_filter, label_filter=self._labels
            )
            return [_key_value(each) async for each in pages]

    async def close(self) -> None:
        await self._client.close()
        if self._credential is not None:
            await self._credential.close()


def open_store(connection: str, label: str = "", **options: Any) -> KeyValueStore:
    """From a connection string, or from an endpoint and the identity of the process."""
    _hush()
    options = {**OPTIONS, **options}
    if connection.lower().startswith("https://"):
        credential = DefaultAzureCredential()
        client = AzureAppConfigurationClient(connection, credential, **options)
        return KeyValueStore(client, label, credential)
    try:
        client = AzureAppConfigurationClient.from_connection_string(connection, **options)
    except ValueError as error:
        raise ConfigConnectionError(
            "LUCIUS_APPCONFIG_CONNECTION is neither a connection string"
            " (Endpoint=https://NAME.azconfig.io;Id=...;Secret=...) nor an endpoint, such as"
            " https://NAME.azconfig.io, for the identity of the process"
        ) from error
    return KeyValueStore(client, label)


def _hush() -> None:
    """The SDK logs every request. What it warns of is still shown."""
    for name in CHATTY:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def _escaped(label: str) -> str:
    """These mean something in a filter."""
    return "".join(f"\\{sign}" if sign in "\\,*" else sign for sign in label)


def _key_value(found: Any) -> KeyValue:
    return KeyValue(
        found.key,
        found.value or "",
        found.label or "",
        found.etag or "",
        found.content_type or "",
        found.last_modified,
    )


@contextmanager
def mapped() -> Iterator[None]:
    try:
        yield
    except ClientAuthenticationError as error:
        raise _refused(error) from error
    except HttpResponseError as error:
        refused = error.status_code == HTTPStatus.FORBIDDEN
        raise _refused(error) if refused else _unavailable(error) from error
    except (AzureError, OSError, TimeoutError) as error:
        raise _unavailable(error) from error


def _refused(error: HttpResponseError) -> ConfigUnavailableError:
    return ConfigUnavailableError(
        "App Configuration refuses the caller of LUCIUS_APPCONFIG_CONNECTION. A connection string needs"
        " a current access key, an identity the role App Configuration Data Reader:"
        f" {_in_one_line(error)}"
    )


def _unavailable(error: Exception) -> ConfigUnavailableError:
    return ConfigUnavailableError(
        f"App Configuration at LUCIUS_APPCONFIG_CONNECTION does not answer: {_in_one_line(error)}"
    )


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


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
