"""Protocols from files: read at the start, and again when they change.

A change that is not valid is reported, and the protocols from before it stay in force.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from lucius.adapters.configs.catalogs import Document, build_catalog, parse_document
from lucius.core.errors import ProtocolError
from lucius.core.plan import RetryPolicy
from lucius.ports.config import Catalog

log = logging.getLogger("lucius.config")

PACKAGED: Final = Path(__file__).parent / "protocols"
SUFFIXES: Final = frozenset((".yaml", ".yml", ".json"))

Signature = tuple[tuple[str, int, int], ...]
"""Every file with its modification time and size."""


class FileConfig:
    """A configuration source over files and directories; by default the packaged protocols.

    `policy` holds the retries and timeouts for step types that define none.
    `last_error` says why the newest change is not in force; None if it is.
    """

    pause = timedelta(seconds=5)

    def __init__(
        self, paths: Path | Sequence[Path] = PACKAGED, *, policy: RetryPolicy | None = None
    ) -> None:
        self._paths = (paths,) if isinstance(paths, Path) else tuple(paths)
        self._policy = policy
        self._signature = self._look()
        self._catalog = self._read(self._signature)
        self.last_error: ProtocolError | None = None

    def catalog(self) -> Catalog:
        return self._catalog

    def fault(self) -> str | None:
        return str(self.last_error) if self.last_error is not None else None

    async def refresh(self) -> bool:
        return await asyncio.to_thread(self._reload)

    async def close(self) -> None:
        """Files are closed as soon as they are read."""

    def _reload(self) -> bool:
        before, signature = self._catalog, self._look()
        if signature == self._signature:
            return False
        self._signature = signature
        try:
            self._catalog = self._read(signature)
        except ProtocolError as error:
            self._report(error)
            return False
        self.last_error = None
        changed = self._catalog.version != before.version
        if changed:
            log.info("protocols reloaded: version %s", self._catalog.version)
        return changed

    def _report(self, error: ProtocolError) -> None:
        if str(error) != str(self.last_error):
            log.error("the changed protocols are not valid and not in force:\n%s", error)
        self.last_error = error

    def _look(self) -> Signature:
        """The files that are there now. A file that changes while it is read is read again the next time."""
        return seen(self._paths)

    def _read(self, signature: Signature) -> Catalog:
        if not signature:
            places = ", ".join(str(path) for path in self._paths)
            raise ProtocolError(f"{places}: there are no protocol files (*.yaml, *.yml, *.json)")
        documents: list[Document] = []
        faults: list[str] = []
        for name, _, _ in signature:
            try:
                documents.append(parse_document(name, Path(name).read_text("utf-8")))
            except ProtocolError as error:
                faults.append(str(error))
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                faults.append(f"{name}: cannot be read: {reason} (LUCIUS_PROTOCOLS names it)")
        if faults:
            raise ProtocolError("\n".join(faults))
        return build_catalog(documents, self._policy)


def seen(paths: Sequence[Path]) -> Signature:
    return tuple(_seen(path) for path in files_of(paths))


def _seen(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, -1
    return str(path), status.st_mtime_ns, status.st_size


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The protocol files at these paths; of a folder, those in it."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = (each for each in path.iterdir() if each.suffix in SUFFIXES)
            found += sorted(each for each in inside if not each.name.startswith("."))
        else:
            found.append(path)
    return found
