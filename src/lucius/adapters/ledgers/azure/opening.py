"""An Azure ledger from its settings: the account by connection string or by the identity of the process."""

import asyncio
import logging
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from azure.data.tables.aio import TableServiceClient
from azure.identity.aio import DefaultAzureCredential

from lucius.adapters.ledgers.azure.heads import Layout
from lucius.adapters.ledgers.azure.ledger import AzureLedger
from lucius.adapters.ledgers.azure.names import table_name
from lucius.adapters.ledgers.azure.projections import Tables
from lucius.adapters.ledgers.azure.single import SingleTable
from lucius.adapters.ledgers.azure.split import SplitTables
from lucius.adapters.ledgers.azure.store import Store, service_time
from lucius.adapters.ledgers.azure.tables import AzureTables, Pause, TableInstruments, Watch
from lucius.core.errors import LuciusError

CHATTY: Final = ("azure.core", "azure.identity", "azure.data.tables")
CONNECT: Final = 5
ANSWER: Final = 20
"""Seconds within which a request is answered. Azure gives up on its side after 30."""
CONNECTION: Final = "LUCIUS_TABLE_CONNECTION"
LEDGER: Final = "LUCIUS_LEDGER_TABLE"
JOBS: Final = "LUCIUS_JOBS_TABLE"
OUTBOX: Final = "outbox"
EVENTS: Final = "events"
"""Tables whose names follow from that of Jobs."""
TAKES: Final = (
    "LUCIUS_TABLE_CONNECTION takes a connection string of a storage account"
    " (AccountName=...;AccountKey=...), or its URL, such as https://NAME.table.core.windows.net, for"
    " the identity of the process"
)


class TableConnectionError(LuciusError):
    """LUCIUS_TABLE_CONNECTION cannot be used."""


def open_tables(
    connection: str, metrics: TableInstruments | None = None, *, pause: Pause = asyncio.sleep
) -> AzureTables:
    """Nothing is asked of the service yet. TableConnectionError for what cannot name an account."""
    for name in CHATTY:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
    counts = metrics or TableInstruments()
    watch = Watch(counts, connection_timeout=CONNECT, read_timeout=ANSWER)
    service, credential = _service(connection, watch)
    return AzureTables(service, watch, counts, credential=credential, pause=pause)


async def open_ledger(given: Mapping[str, str], *, readonly: bool = False) -> AzureLedger:
    """Tables are created where they are missing. `given`: the settings, by variable.

    TableConnectionError or LedgerError, with the setting that helps, where that cannot be.
    """
    tables = {name: table_name(name, given[name]) for name in given if name.endswith("_TABLE")}
    if jobs := tables.get(JOBS):
        # Beside Jobs: what a deployment calls its own must not be shared with another one.
        stem = jobs[:-4] if jobs.lower().endswith("jobs") else jobs
        tables |= {each: table_name(JOBS, f"{stem}{each}") for each in (OUTBOX, EVENTS)}
    _check_apart(tables)
    metrics = TableInstruments()
    store = open_tables(given[CONNECTION], metrics)
    try:
        for setting, table in tables.items():
            await store.ensure(table, setting)
    except BaseException:
        await store.close()
        raise
    return AzureLedger(
        store,
        _layout(store, tables),
        tenants=tables["LUCIUS_IDEMPOTENCY_TABLE"],
        lanes=tables["LUCIUS_JOB_INDEX_TABLE"],
        shared=tables["LUCIUS_INFLIGHT_TABLE"],
        instruments=metrics,
    )


def identity(given: Mapping[str, str]) -> str:
    """Account and table. Keys may be rotated, so they do not count."""
    connection = given[CONNECTION].lower()
    found = re.search("accountname=([^;]+)", connection) or re.search(
        "https://([^./]+)", connection
    )
    table = given.get(JOBS) or given[LEDGER]
    return f"{found[1] if found else ''}/{given['LUCIUS_STORAGE_BACKEND']}/{table}"


def _layout(store: Store, tables: Mapping[str, str]) -> Layout:
    if LEDGER in tables:
        return SingleTable(store, tables[LEDGER])
    apart = Tables(
        tables[JOBS],
        tables["LUCIUS_STEPS_TABLE"],
        tables[OUTBOX],
        tables[EVENTS],
    )
    return SplitTables(store, apart, now=partial(service_time, store))


def _check_apart(tables: Mapping[str, str]) -> None:
    """Azure does not tell names apart by case."""
    whose: dict[str, str] = {}
    for setting, table in tables.items():
        other = whose.setdefault(table.lower(), setting)
        if other != setting:
            raise TableConnectionError(f"{other} and {setting} name the same table, {table}")


def _service(connection: str, watch: Watch) -> tuple[TableServiceClient, Any]:
    """Every request is sent once: who knows what is at stake sends it again."""
    options: dict[str, Any] = {"retry_total": 0, "transport": watch}
    if not connection:
        raise TableConnectionError(f"LUCIUS_TABLE_CONNECTION is empty. {TAKES}")
    if connection.startswith("https://"):
        credential = DefaultAzureCredential()
        return TableServiceClient(connection, credential=credential, **options), credential
    try:
        return TableServiceClient.from_connection_string(connection, **options), None
    except ValueError as error:
        raise TableConnectionError(f"{TAKES}: {error}") from error
