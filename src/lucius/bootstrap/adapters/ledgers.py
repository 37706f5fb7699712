"""Which ledger, and which of its lanes are owned here."""

import os
import socket
import time
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Final
from uuid import uuid4

from lucius.bootstrap.adapters.unsupported import UnsupportedError, optional
from lucius.core.plan import OUTBOX
from lucius.engines.outbox.lane_leases import LeasedLanes
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sqlite.ledger import SqliteLedger
from lucius.ports.lanes import ALL_LANES, BOTH_ENGINES, NO_LANES, Lanes
from lucius.ports.ledger import Ledger
from lucius.settings import Settings
from lucius.settings.behaviour import EMBEDDED_BACKENDS

LEDGER_FILE: Final = "ledger.db"
LANE_LEASE: Final = timedelta(seconds=15)
"""How long after its last sign of life the lanes of a process are taken over by others."""


async def open_ledger(settings: Settings, *, readonly: bool = False) -> Ledger:
    if settings.storage_backend == "memory":
        return MemoryLedger()
    if settings.storage_backend == "sqlite":
        path = ledger_path(settings)
        opened = SqliteLedger.open_readonly(path) if readonly else SqliteLedger.open(path)
        return await opened
    ledger: Ledger = await azure_tables(settings).open_ledger(
        settings.storage_backend,
        settings.table_connection.get_secret_value(),
        table_settings(settings),
    )
    return ledger


def open_lanes(
    settings: Settings, ledger: Ledger, *, takes: bool, engine: str | None = OUTBOX
) -> Lanes:
    """Which lanes this process owns: all of an embedded ledger, a part of a shared one, or none.

    `engine`: whose jobs it moves; None: those of both.
    """
    if settings.storage_backend in EMBEDDED_BACKENDS:
        every = BOTH_ENGINES if engine is None else ALL_LANES
        return every if takes else NO_LANES
    if engine is None:
        raise UnsupportedError(
            f"`lucius up` runs jobs on Temporal over an embedded ledger, and"
            f" LUCIUS_STORAGE_BACKEND={settings.storage_backend} is shared: run `lucius orchestrator`,"
            " `lucius invoker` and `lucius worker`"
        )
    name = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
    store = azure_tables(settings).leases_of(ledger)
    return LeasedLanes(
        store, name, clock=time.monotonic, term=LANE_LEASE, takes=takes, engine=engine
    )


def azure_tables(settings: Settings) -> ModuleType:
    backend = f"LUCIUS_STORAGE_BACKEND={settings.storage_backend}"
    return optional("lucius.ledgers.azure.opening", backend, "azure")


def table_settings(settings: Settings) -> dict[str, str]:
    """The settings that name a table, and the names that they give."""
    shared = {
        "LUCIUS_IDEMPOTENCY_TABLE": settings.idempotency_table,
        "LUCIUS_JOB_INDEX_TABLE": settings.job_index_table,
        "LUCIUS_INFLIGHT_TABLE": settings.inflight_table,
    }
    if settings.storage_backend == "ledger":
        return {"LUCIUS_LEDGER_TABLE": settings.ledger_table, **shared}
    return {
        "LUCIUS_JOBS_TABLE": settings.jobs_table,
        "LUCIUS_STEPS_TABLE": settings.steps_table,
        **shared,
    }


def ledger_path(settings: Settings) -> Path:
    return settings.data_dir / LEDGER_FILE
