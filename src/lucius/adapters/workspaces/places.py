"""Places on this machine that no reference may lead into, however its path is spelled.

A place is known by what it is (device and inode), so that links, another case on a file system
that ignores case, and second mounts of the same directory lead to the same answer.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Final

from lucius.ports.workspace import RECORD_FOLDERS

Identity = tuple[int, int]
KEPT: Final = 10_000
"""Folders that are remembered before all are forgotten."""


class SeenFolders:
    """Folders by their real paths. One look at what a folder is tells whether it is still the same."""

    def __init__(self) -> None:
        self._seen: dict[str, Identity] = {}

    def keep(self, folder: str) -> None:
        identity = _identity(folder)
        if identity is not None:
            if len(self._seen) >= KEPT:
                self._seen.clear()
            self._seen[folder] = identity

    def same(self, folder: str) -> bool:
        known = self._seen.get(folder)
        return known is not None and _identity(folder) == known


class Places:
    def __init__(self, paths: Sequence[Path | str]) -> None:
        self._paths = tuple(real_path(os.path.abspath(path)) for path in paths)
        self._folded = tuple(place.casefold() for place in self._paths)
        self._outside = SeenFolders()

    def hold(self, path: str) -> bool:
        """Whether a path leads to one of the places or below; the file itself need not exist."""
        if self.miss(path):
            return False
        real = real_path(path)
        if self._named(real):
            return True
        own = {identity for place in self._paths if (identity := _identity(place))}
        held = any(_identity(each) in own for each in _upwards(real)) if own else False
        if not held:
            self._outside.keep(os.path.dirname(real))
        return held

    def miss(self, path: str) -> bool:
        """True if it is a plain file, or a new name, in a folder that was found outside.

        False: look closer. This is the quick way: two system calls, where resolving a path takes
        several for each folder above it.
        """
        folder, _, name = path.rpartition("/")
        if name in ("", ".", "..") or not self._outside.same(folder) or self._named(path):
            return False
        try:
            return S_ISREG(os.lstat(path).st_mode)
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False

    def _named(self, real: str) -> bool:
        folded = real.casefold()
        return any(below(folded, place) for place in self._folded)


def real_path(path: str) -> str:
    """The absolute path without links. POSIX keeps a second slash at the start; here it is dropped."""
    return os.path.realpath("/" + path.lstrip("/"))


def below(path: str, root: str) -> bool:
    return path == root or root == "/" or path.startswith(root + "/")


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _upwards(path: str) -> Iterator[str]:
    while True:
        yield path
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


# The quick way from a reference to its file: for plain names with no link on the way, as almost all are.

_PLAIN: Final = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)
_RECORD_PREFIXES: Final = tuple(f"{each}/" for each in RECORD_FOLDERS)


class PlainPaths:
    """Folders that have no link in them are remembered: the next time one look at the folder will do."""

    def __init__(self) -> None:
        self._folders = SeenFolders()

    def path(self, place: tuple[str, str], uri: str) -> str | None:
        """The path of an object below a folder, given by URI and path: None if it takes a closer look."""
        folder, top = place
        rest = uri[len(folder) :] if uri.startswith(folder) else ""
        if _PLAIN.fullmatch(rest) is None:
            return None
        path, above = f"{top}/{rest}", rest.rpartition("/")[0]
        if rest.startswith(_RECORD_PREFIXES):
            return path
        plain = not above or self._plain(top, above)
        if plain:
            return None if os.path.islink(path) else path
        return path if plain is None else None

    def _plain(self, top: str, below: str) -> bool | None:
        """Whether no link leads there; None: nothing is there, so nothing below it can be a link."""
        if self._folders.same(f"{top}/{below}"):
            return True
        step = top
        for part in below.split("/"):
            step = f"{step}/{part}"
            if not os.path.lexists(step):
                return None
            if os.path.islink(step):
                return False
        self._folders.keep(step)
        return True
