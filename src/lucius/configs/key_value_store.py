"""An Azure App Configuration store, read as one consistent set of key-values.

Vendor exceptions stop here.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.identity.aio import DefaultAzureCredential

from lucius.configs.key_values import PREFIX, SENTINEL, KeyValue, marks_of
from lucius.core.errors import ConfigUnavailableError, LuciusError

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
