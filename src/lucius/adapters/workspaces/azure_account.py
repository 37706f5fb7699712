"""A storage account of Azure: where it is, and with what it is reached. Needs none of Azure's libraries."""

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from lucius.core.errors import LuciusError

PUBLIC: Final = "core.windows.net"


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
