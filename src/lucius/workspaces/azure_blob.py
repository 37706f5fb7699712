"""Workspaces in Azure Blob Storage: how references name blobs of an account, and how it is reached.

`az://CONTAINER/PATH`, `abfs[s]://CONTAINER[@HOST]/PATH` and `https://HOST/CONTAINER/PATH` are one blob.
"""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from azure.identity import DefaultAzureCredential
from obstore.auth.azure import AzureCredentialProvider
from obstore.store import AzureStore, ObjectStore

from lucius.core.errors import WorkspaceRefusedError
from lucius.workspaces.azure_account import Account, account_of
from lucius.workspaces.objects import ObjectPlace, ObjectWorkspace, checked_path

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

SCHEMES: Final = ("az", "abfs", "abfss", "https")
_CONTAINER: Final = re.compile(r"\$root|\$web|[a-z0-9](?:-?[a-z0-9]){2,62}")
CLIENT: Final["ClientConfig"] = {
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(minutes=5),
}
RETRIES: Final["RetryConfig"] = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}


def open_blobs(
    connection: str,
    *,
    home: str,
    readable: Sequence[str] = (),
    writable: Sequence[str] = (),
) -> ObjectWorkspace:
    """`home`: LUCIUS_WORKSPACE_URL, wherever it is; jobs have workspaces here only if it is here."""
    account = account_of(connection)

    def place_of(uri: str) -> ObjectPlace:
        return blob_place(account, uri)

    return ObjectWorkspace(
        place_of,
        stores_of(account),
        home=place_of(home) if served(home) else None,
        readable=[place_of(root) for root in readable],
        writable=[place_of(root) for root in writable],
    )


def served(uri: str) -> bool:
    return uri.partition(":")[0].lower() in SCHEMES


def stores_of(account: Account) -> Callable[[str], ObjectStore]:
    """One client for each container, opened when it is first needed."""
    access = dict(account.access)
    if not access:
        # The library asks in threads of its own, so the event loop does not wait.
        access["credential_provider"] = AzureCredentialProvider(DefaultAzureCredential())
    plain = account.endpoint.startswith("http://")

    @cache
    def store_of(container: str) -> ObjectStore:
        return AzureStore(
            container,
            account_name=account.name,
            endpoint=account.endpoint,
            client_options={**CLIENT, "allow_http": plain},
            retry_config=RETRIES,
            **access,
        )

    return store_of


def blob_place(account: Account, uri: str) -> ObjectPlace:
    """Which blob a reference names. Raises WorkspaceRefusedError."""
    try:
        parts = urlsplit(uri)
        container, path = _split(account, parts)
    except ValueError:
        raise WorkspaceRefusedError(f"{uri!r} is not a URI") from None
    if parts.query or parts.fragment or not _CONTAINER.fullmatch(container):
        raise WorkspaceRefusedError(f"{uri!r} does not name a blob of the account {account.name}")
    base = f"{parts.scheme}://{parts.netloc}/"
    base += f"{container}/" if parts.scheme == "https" else ""
    return ObjectPlace(base, container, checked_path(uri, path))


def _split(account: Account, parts: SplitResult) -> tuple[str, str]:
    """Container and path, without a container where the reference leads elsewhere."""
    path = parts.path.removeprefix("/")
    if parts.scheme == "az":
        return parts.netloc, path
    if parts.scheme in ("abfs", "abfss"):
        container, at, host = parts.netloc.partition("@")
        return ("" if at and host.lower() not in account.hosts else container), path
    if parts.scheme == "https" and parts.netloc.lower() in account.hosts:
        container, _, path = path.partition("/")
        return container, path
    return "", path
