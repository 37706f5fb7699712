"""The ledgers that there are. A new technology is a folder here and one line of `LEDGERS`.

Its module has `open_ledger(given, readonly=...)`, which answers a `lucius.ports.ledger.Ledger`. `given` has
the settings that the line names, by variable. Where processes share it, the ledger is also a
`lucius.ports.ledger.Shared`, and the module has `identity(given)`: text that names this ledger alone.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class LedgerKind:
    """What others must know of a technology without opening it."""

    module: str
    reads: tuple[str, ...] = ()
    """The settings that it takes, by variable."""
    needs: tuple[str, ...] = ()
    """Those of them that have no default."""
    extra: str = ""
    """Its libraries, as pip has them."""
    alone: str = ""
    """Why no two processes can share it; empty: they can."""
    file: str = ""
    """Its file in the data directory; empty: it has none."""
    forgets: bool = False
    """Whether it ends with its process."""

    @property
    def shared(self) -> bool:
        return not self.alone


_CONNECTION: Final = ("LUCIUS_TABLE_CONNECTION",)
_AZURE: Final = (
    *_CONNECTION,
    "LUCIUS_STORAGE_BACKEND",
    "LUCIUS_IDEMPOTENCY_TABLE",
    "LUCIUS_JOB_INDEX_TABLE",
    "LUCIUS_INFLIGHT_TABLE",
)
LEDGERS: Final = {
    "sqlite": LedgerKind(
        "lucius.adapters.ledgers.sqlite.ledger",
        reads=("LUCIUS_DATA_DIR",),
        alone="one process writes the file",
        file="ledger.db",
    ),
    "memory": LedgerKind(
        "lucius.adapters.ledgers.memory", alone="it lives inside one process", forgets=True
    ),
    "ledger": LedgerKind(
        "lucius.adapters.ledgers.azure.opening",
        reads=(*_AZURE, "LUCIUS_LEDGER_TABLE"),
        needs=_CONNECTION,
        extra="azure",
    ),
    "table": LedgerKind(
        "lucius.adapters.ledgers.azure.opening",
        reads=(*_AZURE, "LUCIUS_JOBS_TABLE", "LUCIUS_STEPS_TABLE"),
        needs=_CONNECTION,
        extra="azure",
    ),
}
"""By the value of LUCIUS_STORAGE_BACKEND."""
