"""Workspaces in Azure Blob Storage: how references name blobs of an account, and how it is reached.

`az://CONTAINER/PATH`, `abfs[s]://CONTAINER[@HOST]/PATH` and `https://HOST/CONTAINER/PATH` are one blob.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from azure.identity import DefaultAzureCredential
from obstore.auth.azure import AzureCredentialProvider
from obstore.store import AzureStore, ObjectStore

from lucius.core.errors import LuciusError, WorkspaceRefusedError
from lucius.workspaces.objects import ObjectPlace, ObjectWorkspace, checked_path

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

SCHEMES: Final = ("az", "abfs", "abfss", "https")
PUBLIC: Final = "core.windows.net"
_CONTAINER: Final = re.compile(r"\$root|\$web|[a-z0-9](?:-?[a-z0-9]){2,62}")
CLIENT: Final["ClientConfig"] = {
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(minutes=5),
}
RETRIES: Final["RetryConfig"] = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}


class BlobConnectionError(LuciusError):
    """LUCIUS_BLOB_CONNECTION cannot be used."""


@dataclass(frozen=True, slots=True)
class Account:
    """A storage account: where it is, and with what it is reached."""

    name: str
    endpoint: str
    access: dict[str, Any] = field(default_factory=dict, repr=False)
    """Key or signature; empty: the identity of the process."""

    @property
    def hosts(self) -> frozenset[str]:
        """Under which its blobs are known; the second is that of Data Lake."""
        host = urlsplit(self.endpoint).netloc.lower()
        return frozenset((host, host.replace(".blob.", ".dfs.", 1)))


def account_of(connection: str) -> Account:
    """From a connection string, or the URL of an account. Raises BlobConnectionError."""
    if connection.lower().startswith("https://"):
        parts = urlsplit(connection)
        if parts.path.strip("/") or parts.query or "." not in parts.netloc:
            raise BlobConnectionError(_NEITHER)
        host = parts.netloc.lower().replace(".dfs.", ".blob.", 1)
        return Account(host.partition(".")[0], f"https://{host}")
    pairs = (part.partition("=") for part in connection.split(";") if part.strip())
    said = {name.strip().lower(): value.strip() for name, _, value in pairs}
    name, key = said.get("accountname", ""), said.get("accountkey", "")
    signature = said.get("sharedaccesssignature", "")
    if not name or not (key or signature):
        raise BlobConnectionError(_NEITHER)
    protocol = said.get("defaultendpointsprotocol", "https")
    usual = f"{protocol}://{name}.blob.{said.get('endpointsuffix', PUBLIC)}"
    access = {"account_key": key} if key else {"sas_key": signature}
    return Account(name, said.get("blobendpoint", usual).rstrip("/"), access)


_NEITHER: Final = (
    "LUCIUS_BLOB_CONNECTION is neither a connection string (AccountName=...;AccountKey=...) nor the URL"
    " of a storage account, such as https://NAME.blob.core.windows.net, for the identity of the process"
)


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
