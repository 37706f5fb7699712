"""A process with a workload identity and no key: it uses each service of Azure once, and says what it got.

It is a process of its own, because the libraries read their certificates when they are imported.
"""

import asyncio
import os
import sys
from datetime import timedelta

from azure.servicebus._pyamqp.aio import _connection_async
from obstore.store import AzureStore

from lucius.adapters.buses.service_bus import connecting
from lucius.adapters.configs.app_configuration import open_store
from lucius.adapters.ledgers.azure.opening import open_tables
from lucius.adapters.ledgers.azure.store import Act, Change, row_of
from lucius.adapters.workspaces.azure_account import Account
from lucius.adapters.workspaces.azure_blob import stores_of
from lucius.ports.bus import Message, Subscription

ACCOUNT = "devstoreaccount1"
PLAN = connecting.Plan()


async def tables(place: str) -> object:
    store = open_tables(f"{place}/{ACCOUNT}")
    await store.ensure("identities", "LUCIUS_LEDGER_TABLE")
    await store.commit("identities", [Change(Act.UPSERT, row_of("p", "r", {"said": "hello"}))])
    row = await store.get("identities", "p", "r")
    await store.close()
    return row and row["said"]


async def blobs(place: str) -> object:
    """A URL with a path is Azurite's alone, so the account is not read from a setting."""
    store = stores_of(Account(ACCOUNT, f"{place}/{ACCOUNT}"))("work")
    assert isinstance(store, AzureStore)
    await store.put_async("a/b", b"hello")
    return bytes(await (await store.get_async("a/b")).bytes_async()).decode()


async def configuration(place: str) -> object:
    store = open_store(place)
    found = await store.read()
    await store.close()
    return found[0].value


async def bus(place: str) -> object:
    """The SDK drops the port of a namespace, and looks for it at the usual one."""
    setattr(_connection_async, "SECURE_PORT", int(place.partition(":")[2]))  # noqa: B010
    connecting.OPTIONS["connection_verify"] = os.environ["SSL_CERT_FILE"]
    administrator = connecting.open_administrator(place, PLAN)
    await administrator.provision([Subscription("t", "w")])
    await administrator.close()
    made = connecting.open_service_bus(place, PLAN, creates=False)
    await made.publish("t", [Message("m1", {"said": "hello"})])
    (delivery,) = await made.receive("w", ["t"], 1, timedelta(seconds=30))
    await made.complete(delivery)
    await made.close()
    return delivery.message.body["said"]


PARTS = {"tables": tables, "blobs": blobs, "configuration": configuration, "bus": bus}

if __name__ == "__main__":
    print(asyncio.run(PARTS[sys.argv[1]](sys.argv[2])))
