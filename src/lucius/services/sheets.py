"""A sheet: a page on its way through OCR. It is the text of its page, or a picture that must be read."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

Picture: TypeAlias = "NDArray[Any]"
"""Rows of pixels, blue first."""
Sheet: TypeAlias = "str | Picture"
Sheets: TypeAlias = Iterator[tuple[int, "Sheet"]]
"""With the numbers of their pages."""
