"""Places on this machine that no reference may lead into, however its path is spelled.

A place is known by what it is (device and inode), so that links, another case on a file system
that ignores case, and second mounts of the same directory lead to the same answer.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

Identity = tuple[int, int]


class Places:
    def __init__(self, paths: Sequence[Path | str]) -> None:
        self._paths = tuple(real_path(os.path.abspath(path)) for path in paths)

    def hold(self, path: str) -> bool:
        """Whether a path leads to one of the places or below; the file itself need not exist."""
        real = real_path(path)
        if any(below(real.casefold(), place.casefold()) for place in self._paths):
            return True
        own = {identity for place in self._paths if (identity := _identity(place))}
        return any(_identity(each) in own for each in _upwards(real)) if own else False


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
