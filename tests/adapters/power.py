"""A disk that forgets: what was not synced is gone, or half there, after a loss of power.

It watches the syncs of a local workspace below one folder and can put the folder back to what would be
there if the power, or the process, had failed at any moment.
"""

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lucius.adapters.workspaces import files as together
from lucius.adapters.workspaces import records, write_ahead_files
from lucius.adapters.workspaces.files import RECORDS_FILE
from lucius.adapters.workspaces.records import Records

Names = dict[str, int | None]
"""By path: the inode of a file, None for a folder."""


@dataclass
class Moment:
    """What was durable, what was there, and what had been answered until then."""

    durable_names: Names
    durable_contents: dict[int, bytes]
    names: Names
    contents: dict[int, bytes]
    database: bytes
    answered: tuple[Any, ...]


@dataclass
class ForgetfulDisk:
    folder: Path
    answered: list[Any] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    _names: Names = field(default_factory=dict)
    _contents: dict[int, bytes] = field(default_factory=dict)
    _database: bytes = b""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Two threads write: a moment is one of the whole disk."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name in ("fsync", "link", "replace", "mkdir"):
                stack.enter_context(patch.object(os, name, self._watched(getattr(os, name))))
            for module in (together, write_ahead_files):
                synced = self._watched(module.sync_file_system, self._sync_all)
                stack.enter_context(patch.object(module, "sync_file_system", synced))
            committed = Records._committed

            def watched(database: Records, asked: Any, patience: float) -> bool:
                with self._lock:
                    self._remember()
                    done = committed(database, asked, patience)
                    assert database._writing is not None
                    self._database = database._writing.serialize()
                    self._remember()
                    return done

            stack.enter_context(patch.object(records.Records, "_committed", watched))
            yield
            self._remember()

    def _watched(self, real: Any, after: Callable[[], None] | None = None) -> Any:
        def called(*args: Any, **options: Any) -> Any:
            with self._lock:
                self._remember()
                answer = real(*args, **options)
                if after is not None:
                    after()
                elif real.__name__ == "fsync":
                    self._sync(args[0])
                return answer

        return called

    def _sync(self, handle: int) -> None:
        path, found = os.readlink(f"/proc/self/fd/{handle}"), os.fstat(handle)
        if not stat.S_ISDIR(found.st_mode):
            self._contents[found.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()
            return
        for gone in [each for each in self._names if os.path.dirname(each) == path]:
            del self._names[gone]
        self._names |= {n: i for n, i in self._tree().items() if os.path.dirname(n) == path}

    def _sync_all(self) -> None:
        self._names, self._contents = self._tree(), self._now()

    def _tree(self) -> Names:
        found: Names = {}
        for top, folders, files in os.walk(self.folder):
            found |= {f"{top}/{name}": None for name in folders}
            for name in (each for each in files if not each.startswith(RECORDS_FILE)):
                with suppress(FileNotFoundError):  # another thread is at work too
                    found[f"{top}/{name}"] = os.stat(f"{top}/{name}").st_ino
        return found

    def _now(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for path, inode in self._tree().items():
            with suppress(FileNotFoundError):
                if inode is not None:
                    found[inode] = Path(path).read_bytes()
        return found

    def _remember(self) -> None:
        answered = tuple(self.answered)  # first: whatever is done for them is there already
        self.moments.append(
            Moment(
                dict(self._names),
                dict(self._contents),
                self._tree(),
                self._now(),
                self._database,
                answered,
            )
        )

    # -- afterwards --------------------------------------------------------------------------

    def after_power_loss(self, moment: Moment) -> None:
        """Nothing is left but what was synced."""
        self._rebuild(moment.durable_names, moment.durable_contents, moment.database)

    def after_torn_writes(self, moment: Moment) -> None:
        """Names have reached the disk, contents only where they were synced."""
        self._rebuild(moment.names, moment.durable_contents, moment.database)

    def after_kill(self, moment: Moment) -> None:
        """The process is gone; the system has everything that it wrote."""
        self._rebuild(moment.names, moment.contents, moment.database)

    def _rebuild(self, names: Names, contents: dict[int, bytes], database: bytes) -> None:
        for each in self.folder.iterdir():
            shutil.rmtree(each)
        for path, inode in sorted(names.items()):
            if not os.path.isdir(os.path.dirname(path)):
                continue  # nothing leads there
            if inode is None:
                os.mkdir(path)
            else:
                Path(path).write_bytes(contents.get(inode, b""))
        if database:
            root = self.folder / "jobs"
            root.mkdir(exist_ok=True)
            (root / RECORDS_FILE).write_bytes(database)
