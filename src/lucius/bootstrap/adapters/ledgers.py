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
from lucius.ports.lanes import ALL_LANES, BOTH_ENGINES, NO_LANES, Lanes
from lucius.ports.ledger import Ledger, Shared
from lucius.settings import Settings

LANE_LEASE: Final = timedelta(seconds=15)
"""How long after its last sign of life the lanes of a process are taken over by others."""


async def open_ledger(settings: Settings, *, readonly: bool = False) -> Ledger:
    given = settings.given(settings.ledger.reads)
    ledger: Ledger = await _module(settings).open_ledger(given, readonly=readonly)
    return ledger


def identity(settings: Settings) -> str:
    """Names the ledger that processes share: whoever has the same one belongs to this installation."""
    return str(_module(settings).identity(settings.given(settings.ledger.reads)))


def _module(settings: Settings) -> ModuleType:
    kind = settings.ledger
    return optional(kind.module, f"LUCIUS_STORAGE_BACKEND={settings.storage_backend}", kind.extra)


def open_lanes(
    settings: Settings, ledger: Ledger, *, takes: bool, engine: str | None = OUTBOX
) -> Lanes:
    """Which lanes this process owns: all of an embedded ledger, a part of a shared one, or none.

    `engine`: whose jobs it moves; None: those of both.
    """
    if not isinstance(ledger, Shared):
        every = BOTH_ENGINES if engine is None else ALL_LANES
        return every if takes else NO_LANES
    if engine is None:
        raise UnsupportedError(
            f"`lucius up` runs jobs on Temporal over an embedded ledger, and"
            f" LUCIUS_STORAGE_BACKEND={settings.storage_backend} is shared: run `lucius orchestrator`,"
            " `lucius invoker` and `lucius worker`"
        )
    name = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
    return LeasedLanes(
        ledger.leases(),
        name,
        clock=time.monotonic,
        term=LANE_LEASE,
        takes=takes,
        engine=engine,
    )


def ledger_path(settings: Settings) -> Path | None:
    """None: the ledger is no file of the data directory."""
    return settings.data_dir / settings.ledger.file if settings.ledger.file else None
