"""Which pages of a document are read: the first ones, or those that are named, such as `1-3,7`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lucius.platform import FatalError
from lucius.services.limits import MAX_PAGES

_RANGES: Final = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")


@dataclass(frozen=True, slots=True)
class PageChoice:
    pages: int | str | None = None
    """How many from the first on, or their numbers as text. None: all."""

    def validate(self) -> None:
        if isinstance(self.pages, int) and self.pages < 1:
            raise ValueError("/pages: must be at least 1")
        if isinstance(self.pages, str) and not _RANGES.fullmatch(self.pages):
            raise ValueError("/pages: must be page numbers and ranges, such as 1-3,7")

    def of(self, count: int) -> Sequence[int]:
        """The numbers of the chosen pages of a document with so many."""
        if count < 1:
            raise FatalError("the document has no pages", code="EMPTY_DOCUMENT")
        chosen = self._chosen(count)
        if not chosen:
            raise FatalError(
                f"/pages: {self.pages} names none of the {count} pages", code="PAGES_OUT_OF_RANGE"
            )
        if len(chosen) > MAX_PAGES:
            raise FatalError(
                f"the document has {count} pages; {MAX_PAGES} are read at most: choose some with"
                " the payload's `pages`",
                code="DOCUMENT_TOO_LARGE",
            )
        return chosen

    def _chosen(self, count: int) -> Sequence[int]:
        if not isinstance(self.pages, str):
            return range(1, min(count, self.pages or count) + 1)
        named: set[int] = set()
        for part in self.pages.split(","):
            first, _, last = part.partition("-")
            named.update(range(max(int(first), 1), min(int(last or first), count) + 1))
        return sorted(named)
