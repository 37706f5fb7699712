"""What Azurite, Microsoft's emulator of Azure Storage, needs before LUCIUS can use it: a container.

In Azure whoever sets up the account creates it, and LUCIUS has no right to.
"""

import base64
import hashlib
import hmac
from email.utils import formatdate
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import httpx

from lucius.core.errors import LuciusError
from lucius.workspaces.azure_account import account_of

VERSION: Final = "2021-08-06"


async def create_container(connection: str, container: str) -> None:
    """With the account key of the connection string. One that is there already is fine."""
    account = account_of(connection)
    url = f"{account.endpoint}/{container}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    resource = f"/{account.name}{urlsplit(url).path}\nrestype:container"
    signed = f"PUT{chr(10) * 12}{named}{resource}"
    key = base64.b64decode(account.access["account_key"])
    digest = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account.name}:{base64.b64encode(digest).decode()}"
    async with httpx.AsyncClient() as client:
        answer = await client.put(url, params={"restype": "container"}, headers=headers)
    if answer.status_code not in (HTTPStatus.CREATED, HTTPStatus.CONFLICT):
        raise LuciusError(f"the container {container} cannot be created: {answer.text}")
