"""OCR: from a PDF, an image or a text to its text, `ocr/output.txt`, with a form feed between pages."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from lucius.platform import FatalError, Output, Service, SyncTask
from lucius.services.documents import joined, sheets_of, whole_text
from lucius.services.limits import MAX_DOCUMENT, OCR_MEMORY, OCR_PAGES, OCR_TIME, modestly
from lucius.services.page_choice import PageChoice
from lucius.services.page_slots import PageSlots
from lucius.services.recognition import LANGUAGES, Recogniser, recogniser
from lucius.services.sheets import Picture, Sheets

SLOTS: Final = PageSlots(OCR_PAGES)
"""Shared by all processes of the service."""


@dataclass(frozen=True, slots=True)
class OcrOptions(PageChoice):
    language: str | None = None
    """A language tag such as `en` or `zh-CN`. A text layer is taken whatever it says."""

    def needs(self) -> None:
        """FatalError: a page must be recognised in a language that the model does not know."""
        if self.language is None or self.language.lower().split("-")[0] in LANGUAGES:
            return
        known = " and ".join(LANGUAGES)
        raise FatalError(
            f"/language: {self.language} cannot be recognised from images, only {known}",
            code="LANGUAGE_UNSUPPORTED",
        )


class Ocr(Service):
    name = "ocr"
    step_types = ("OCR",)
    payload_model = OcrOptions

    isolation = "process"
    processes = OCR_PAGES
    input_limit = MAX_DOCUMENT
    time_limit = OCR_TIME
    memory_limit = OCR_MEMORY

    def execute(self, task: SyncTask) -> Output:
        options: OcrOptions = task.payload
        with modestly():
            sheets = sheets_of(task.input(), options)
            with ThreadPoolExecutor(OCR_PAGES) as pool:
                texts = recognised(sheets, options, pool, recogniser())
                pages = whole_text(texts, task.check_cancelled)
            recogniser().rest()
            task.stage("output.txt", joined(pages))
        return Output(name="output.txt")


def recognised(
    sheets: Sheets, options: OcrOptions, pool: ThreadPoolExecutor, reader: Recogniser
) -> Iterator[tuple[int, str]]:
    """The text of every sheet, in order; a few pictures ahead are read meanwhile."""
    ahead: deque[tuple[int, str | Future[str]]] = deque()
    for number, sheet in sheets:
        if isinstance(sheet, str):
            ahead.append((number, sheet))
        else:
            options.needs()
            ahead.append((number, pool.submit(_in_turn, reader, sheet)))
        if len(ahead) > OCR_PAGES:
            yield _read(*ahead.popleft())
    while ahead:
        yield _read(*ahead.popleft())


def _in_turn(reader: Recogniser, picture: Picture) -> str:
    with SLOTS.taken():
        return reader.text(picture)


def _read(number: int, text: "str | Future[str]") -> tuple[int, str]:
    return number, text if isinstance(text, str) else text.result()
