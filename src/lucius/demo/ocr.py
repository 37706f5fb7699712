"""OCR: from a document to its text, `ocr/output.txt`."""

from dataclasses import dataclass

from lucius.demo.text import document_pages
from lucius.platform import FatalError, Output, Service, Task


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

    async def execute(self, task: Task) -> Output:
        options: OcrOptions = task.payload
        pages = document_pages(await task.input(), options.pages)
        text = "\n\n".join(page for page in pages if page.strip())
        if not text.strip():
            raise FatalError("the document has no text", code="EMPTY_DOCUMENT")
        await task.stage("output.txt", text + "\n")
        return Output(name="output.txt")
