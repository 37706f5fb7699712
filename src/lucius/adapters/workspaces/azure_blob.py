"""Blobs of one storage account of Azure: how references name them, and how the account is reached.

`az://CONTAINER/PATH`, `abfs[s]://CONTAINER[@HOST]/PATH` and `https://HOST/CONTAINER/PATH` are one blob.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import SplitResult

from azure.identity import DefaultAzureCredential
from obstore.auth.azure import AzureCredentialProvider
from obstore.store import AzureStore

from lucius.adapters.workspaces.azure_account import Account
from lucius.adapters.workspaces.objects import CLIENT, RETRIES, Stores

SCHEMES: Final = ("az", "abfs", "abfss", "https")
_CONTAINER: Final = re.compile(r"\$root|\$web|[a-z0-9](?:-?[a-z0-9]){2,62}")
_REFUSED: Final = (
    "the storage refuses the caller of LUCIUS_BLOB_CONNECTION. A connection string needs a current"
    " account key, an identity the role Storage Blob Data Contributor"
)


def blobs(account: Account) -> Stores:
    return Stores(
        schemes=SCHEMES,
        setting="LUCIUS_BLOB_CONNECTION",
        object=f"a blob of the account {account.name}",
        container="container",
        containers=_CONTAINER,
        split=partial(_split, account),
        open=stores_of(account),
        refused=_REFUSED,
    )


def stores_of(account: Account) -> Callable[[str], AzureStore]:
    access = dict(account.access)
    if not access:
        # The library asks in threads of its own, so the event loop does not wait.
        access["credential_provider"] = AzureCredentialProvider(DefaultAzureCredential())
    plain = account.endpoint.startswith("http://")

    def store_of(container: str) -> AzureStore:
        return AzureStore(
            container,
            account_name=account.name,
            endpoint=account.endpoint,
            client_options={**CLIENT, "allow_http": plain},
            retry_config=RETRIES,
            **access,
        )

    return store_of


def _split(account: Account, parts: SplitResult) -> tuple[str, str]:
    """Container and path, without a container where the reference leads elsewhere."""
    path = parts.path.removeprefix("/")
    if parts.scheme == "az":
        return parts.netloc, path
    if parts.scheme in ("abfs", "abfss"):
        container, at, host = parts.netloc.partition("@")
        return ("" if at and host.lower() not in account.hosts else container), path
    if parts.netloc.lower() in account.hosts:
        container, _, path = path.partition("/")
        return container, path
    return "", path
