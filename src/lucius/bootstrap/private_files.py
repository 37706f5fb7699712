"""The data directory is for its owner alone: 0700, and 0600 what LUCIUS keeps in it, whatever the umask.

What is made is made so. This tightens what an earlier version or somebody else has left open. A
`keys.json` is not tightened but refused by its reader: others may have written keys into it.
"""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from lucius.bootstrap.adapters.workspaces import workspace_root
from lucius.ledgers import LEDGERS
from lucius.machine import PRIVATE, private_folder
from lucius.settings import Settings

log = logging.getLogger("lucius")
FILE: Final = 0o600
ADVICE: Final = "give --data (LUCIUS_DATA_DIR) a directory of its own"
OF_STACKS: Final = ("nats.key", "azurite.key", "servicebus.key", "appconfig.key", "invoker.key")
SECRETS: Final = ("callback.key", "webhook.key", "keys.json.lock", *OF_STACKS, "stack.env")
FILES: Final = [kind.file for kind in LEDGERS.values() if kind.file]
"""Of ledgers."""
MADE: Final = {*FILES, *SECRETS, "keys.json", "installation", "workspace", "demo"}
"""Names of which one at least is in a data directory that LUCIUS has used."""


def own_data(settings: Settings) -> None:
    """Make the data directory if it is missing, and close what is open in it."""
    data = settings.data_dir
    private_folder(data)
    if _is_ours(data):
        _close(data)
    else:
        log.warning("%s holds what LUCIUS did not make, so its mode stays: %s", data, ADVICE)
    _make_workspaces(settings)
    for path in _ours(settings):
        _close(path)


def _is_ours(data: Path) -> bool:
    """Empty, or with something in it that only LUCIUS makes. `/srv` is not closed for its name alone."""
    names = {path.name for path in data.iterdir()}
    return not names or not names.isdisjoint(MADE)


def _make_workspaces(settings: Settings) -> None:
    """Those of the data directory are behind its door; others get one of their own."""
    root = workspace_root(settings)
    if (
        settings.workspace_url.startswith("file:")
        and settings.data_dir.absolute() not in root.parents
    ):
        with suppress(OSError):  # services report what they cannot write
            private_folder(root / settings.system)


def _ours(settings: Settings) -> Iterator[Path]:
    data, root = settings.data_dir, workspace_root(settings)
    for name in FILES:
        yield from data.glob(f"{name}*")
    yield from (data / name for name in SECRETS)
    if data.absolute() in root.parents:
        yield root
    yield root / settings.system


def _close(path: Path) -> None:
    """A directory that many share (`/tmp`) stays as it is: it is not ours."""
    try:
        found = path.lstat()
        folder = stat.S_ISDIR(found.st_mode)
        if not (folder or stat.S_ISREG(found.st_mode)) or found.st_mode & stat.S_ISVTX:
            return
        mode = stat.S_IMODE(found.st_mode)
        closed = mode & (PRIVATE if folder else FILE)
        if closed != mode:
            os.chmod(path, closed)
            log.warning("%s was open to other users: its mode was %o and is %o", path, mode, closed)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("%s is open to other users and cannot be closed: %s", path, error.strerror)
