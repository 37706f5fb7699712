"""The quick way from a reference to its file: for plain names with no link on the way, as almost all are."""

import os
import re
from typing import Final

from lucius.ports.workspace import NOTES
from lucius.workspaces.places import SeenFolders

_PLAIN: Final = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)
_NOTED: Final = tuple(f"{each}/" for each in NOTES)


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
        if rest.startswith(_NOTED):
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
