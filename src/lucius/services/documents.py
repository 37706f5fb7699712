"""Documents as they come: a PDF, an image or a text becomes sheets, one a page."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from lucius.platform import FatalError
from lucius.services.sheets import MAX_TEXT, PageChoice, Sheets, has_words

IMAGE_MARKS: Final = (
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"II*\x00",
    b"MM\x00*",
    b"GIF8",
    b"BM",
)
OFFICE_MARKS: Final = {
    b"PK\x03\x04": "a DOCX or another file of an office program",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a DOC or another file of an older office program",
    b"{\\rtf": "RTF",
}
NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
"""Bytes that no text has in an encoding of one byte a letter."""
PAGE_END: Final = "\f"


def sheets_of(data: bytes, choice: PageChoice) -> Sheets:
    """The chosen pages with their numbers, from 1. They are made one by one."""
    if not data.strip():
        raise FatalError("the document is empty", code="EMPTY_DOCUMENT")
    if data.startswith(b"%PDF-"):
        from lucius.services.pages import pdf_sheets

        return pdf_sheets(data, choice)
    if data.startswith(IMAGE_MARKS) or (data[:4], data[8:12]) == (b"RIFF", b"WEBP"):
        from lucius.services.pages import image_sheets

        return image_sheets(data, choice)
    return _text_sheets(data, choice)


def _text_sheets(data: bytes, choice: PageChoice) -> Sheets:
    pages = _decoded(data).split(PAGE_END)
    return ((number, pages[number - 1]) for number in choice.of(len(pages)))


def _decoded(data: bytes) -> str:
    """UTF-8; else what older programs write (Latin-1, Windows-1252), where nothing in it is no text."""
    for mark, kind in OFFICE_MARKS.items():
        if data.startswith(mark):
            raise FatalError(
                f"the document is {kind}, which is not read: save it as PDF or text, and submit that",
                code="UNSUPPORTED_DOCUMENT",
            )
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    if not NO_TEXT.search(data):
        with suppress(UnicodeDecodeError):
            return data.decode("cp1252")
    raise FatalError(
        "the document is neither a PDF, an image nor text (UTF-8 or Latin-1): save it as PDF",
        code="UNSUPPORTED_DOCUMENT",
    )


def text_pages(data: bytes) -> dict[int, str]:
    """The text of each page, for a service that reads text alone."""
    return whole_text(_texts(sheets_of(data, PageChoice())))


def _texts(sheets: Sheets) -> Iterator[tuple[int, str]]:
    for number, sheet in sheets:
        if not isinstance(sheet, str):
            raise FatalError(
                f"page {number} is an image, which only OCR reads: submit the document as"
                " OCR->EMBEDDING or OCR->EMBEDDING->SIS",
                code="OCR_NEEDED",
            )
        yield number, sheet


def whole_text(
    texts: Iterator[tuple[int, str]], each: Callable[[], None] = lambda: None
) -> dict[int, str]:
    """The pages, as long as they fit. `each` is called between two of them."""
    pages, size = {}, 0
    for number, text in texts:
        each()
        pages[number] = text
        size += len(text)
        if size > MAX_TEXT:
            raise FatalError(
                f"the document has more than {MAX_TEXT} characters of text",
                code="DOCUMENT_TOO_LARGE",
            )
    _check_words(pages)
    return pages


def _check_words(pages: dict[int, str]) -> None:
    if not any(text.strip() for text in pages.values()):
        raise FatalError("the document has no text", code="EMPTY_DOCUMENT")
    if not any(map(has_words, pages.values())):
        raise FatalError("the text has no letter and no digit in it", code="NO_WORDS")


def joined(pages: dict[int, str]) -> str:
    """One text with a form feed between two pages; pages that were not chosen are empty."""
    last = max(pages)
    return PAGE_END.join(pages.get(number, "") for number in range(1, last + 1)) + "\n"
