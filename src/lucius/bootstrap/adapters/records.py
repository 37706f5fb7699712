"""Where a service of its own process records what it has begun and done."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lucius.bootstrap.adapters.unsupported import optional
from lucius.platform.records import Records, WorkspaceRecords
from lucius.ports.workspace import Workspace
from lucius.settings import Settings


@asynccontextmanager
async def open_records(settings: Settings, workspace: Workspace) -> AsyncIterator[Records]:
    table = settings.service_records_table
    if not table:
        yield WorkspaceRecords(workspace)
        return
    tables = optional(
        "lucius.ledgers.azure.records", f"LUCIUS_SERVICE_RECORDS_TABLE={table}", "azure"
    )
    connection = settings.table_connection.get_secret_value()
    async with tables.open_records(connection, table) as records:
        yield records
