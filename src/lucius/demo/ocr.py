"""OCR: from a document to its text, `ocr/output.txt`."""

from dataclasses import dataclass

from lucius.demo.text import MEMORY_LIMIT, TIME_LIMIT, document_pages
from lucius.platform import FatalError, Output, Service, SyncTask


@dataclass(frozen=True, slots=True)
class OcrOptions:
    language: str | None = None
    """Kept for the contract: text that is in the file needs no recognition."""
    pages: int | None = None

    def validate(self) -> None:
        if self.pages is not None and self.pages < 1:
            raise ValueError("/pages: must be at least 1")


class Ocr(Service):
    name = "ocr"
    step_types = ("OCR",)
    payload_model = OcrOptions

    isolation = "process"
    time_limit = TIME_LIMIT
    memory_limit = MEMORY_LIMIT

    def execute(self, task: SyncTask) -> Output:
        options: OcrOptions = task.payload
        pages = document_pages(task.input(), options.pages)
        text = "\n\n".join(page for page in pages if page.strip())
        if not text.strip():
            raise FatalError("the document has no text", code="EMPTY_DOCUMENT")
        task.stage("output.txt", text + "\n")
        return Output(name="output.txt")
