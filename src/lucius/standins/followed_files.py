"""Protocol files that the stand-in for App Configuration holds, as they change."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from lucius.configs.documents import parse_document
from lucius.configs.files import Signature, seen
from lucius.core.errors import ProtocolError

FOLLOW: Final = 1.0
"""Seconds between two looks."""


class Holder(Protocol):
    """What holds the content of protocol files."""

    def hold(self, *bodies: Mapping[str, Any]) -> set[str]: ...

    def delete(self, key: str) -> object: ...


class Followed:
    """Protocol files and folders. What is in them is held, and again whenever it changes."""

    def __init__(self, holder: Holder, paths: Sequence[Path]) -> None:
        self._holder = holder
        self._paths = paths
        self._seen: Signature = ()
        self._keys: set[str] = set()

    def look(self) -> None:
        """Raises ProtocolError or OSError. What was held is held on then, until the files change again."""
        now, before = seen(self._paths), self._seen
        if now == before:
            return
        self._seen = now
        found = [parse_document(name, Path(name).read_text("utf-8")) for name, _, _ in now]
        for key in self._keys:
            self._holder.delete(key)
        self._keys = self._holder.hold(*(each.body for each in found))

    async def follow(self) -> NoReturn:
        while True:
            await asyncio.sleep(FOLLOW)
            try:
                self.look()
            except (ProtocolError, OSError) as error:
                print(f"the changed protocols are not held: {error}", file=sys.stderr)
