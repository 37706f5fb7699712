"""OCR: from a PDF, an image or a text to its text, `ocr/output.txt`, with a form feed between pages."""

import fcntl
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final

from lucius.platform import FatalError, Output, Service, SyncTask
from lucius.services.documents import joined, sheets_of, whole_text
from lucius.services.sheets import (
    MAX_DOCUMENT,
    OCR_MEMORY,
    OCR_PAGES,
    OCR_TIME,
    PageChoice,
    Picture,
    Sheets,
    modestly,
)

# Reads pictures of pages with an OCR model that comes inside its package: English and Chinese.

LANGUAGES: Final = ("en", "zh")
DETECTION_SIDE: Final = 1280
"""Pixels of the longer side when lines are looked for; they are read at full size."""
WIDENED: Final = 2.4
"""How far a line's box goes beyond its letters. With less, spaces between words are lost."""
PARAGRAPH: Final = 0.9
"""A gap of more than this part of a line's height begins a paragraph."""

TALL: Final = 1.5
"""A line that is so much higher than wide lies on its side."""
JUDGED: Final = 5
"""Lines by which it is judged whether a page is upside down."""
SURE: Final = 0.9
KEPT: Final = 2
"""Models that a process keeps between two documents."""


class Recogniser:
    """Models are loaded as they are needed and used again; each reads one picture at a time."""

    def __init__(self) -> None:
        self._idle: list[Any] = []

    def text(self, picture: Picture) -> str:
        try:
            model = self._idle.pop()
        except IndexError:
            model = _loaded()
        found = model(picture)
        for turned in _turns(model, picture, found):
            found = model(turned)
        self._idle.append(model)
        return _in_lines(zip(found.boxes, found.txts, strict=True) if found.txts else ())

    def rest(self) -> None:
        """Between two documents: models beyond a few would keep memory that other processes need."""
        del self._idle[KEPT:]


@cache
def recogniser() -> Recogniser:
    """The same for all documents of a process."""
    return Recogniser()


def _loaded() -> Any:
    """Each line is read by itself: beside a longer one it would be padded, and lose its spaces."""
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    return RapidOCR(
        params={
            "Global.log_level": "error",
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "Det.limit_type": "max",
            "Det.limit_side_len": DETECTION_SIDE,
            "Det.unclip_ratio": WIDENED,
            "Rec.rec_batch_num": 1,
        }
    )


def _turns(model: Any, picture: Picture, found: Any) -> Iterator[Picture]:
    """The page as it should lie, if it lies on its side or upside down."""
    import numpy as np

    boxes = found.boxes if found.boxes is not None else []
    if 2 * sum(map(_is_tall, boxes)) > len(boxes):
        picture = np.rot90(picture).copy()
        boxes = model.text_det(picture).boxes
        if boxes is None:
            return
        if not _upside_down(model, picture, boxes):
            yield picture
            return
    if len(boxes) and _upside_down(model, picture, boxes):
        yield np.rot90(picture, 2).copy()


def _is_tall(box: Any) -> bool:
    width, height = box.max(axis=0) - box.min(axis=0)
    return bool(height > TALL * width)


def _upside_down(model: Any, picture: Picture, boxes: Any) -> bool:
    """By the longest lines, each of which a small model judges."""
    longest = sorted(boxes, key=_width)[-JUDGED:]
    judged = model.text_cls(model.crop_text_regions(picture, longest)).cls_res
    turned = sum("180" in label and score > SURE for label, score in judged)
    return bool(2 * turned > len(judged))


def _width(box: Any) -> float:
    return float(box[:, 0].max() - box[:, 0].min())


def _in_lines(found: Iterable[tuple[Any, str]]) -> str:
    """Boxes of one height are one line; a wide gap between lines begins a paragraph."""
    lines: list[tuple[float, float, str]] = []
    for box, text in found:
        top, bottom = min(y for _, y in box), max(y for _, y in box)
        if lines and (top + bottom) / 2 < lines[-1][1]:
            above, below, before = lines.pop()
            lines.append((min(top, above), max(bottom, below), f"{before} {text.strip()}"))
        else:
            lines.append((top, bottom, text.strip()))
    parts = [lines[0][2]] if lines else []
    for (_, end, _), (top, bottom, text) in pairwise(lines):
        parts.append("\n\n" if top - end > PARAGRAPH * (bottom - top) else "\n")
        parts.append(text)
    return "".join(parts)


# Pages that are recognised at once: as many as there are cores, whichever documents they are of.
#
# So one document alone uses all cores, and ten together take no more memory than one. The processes of a
# service inherit the slots from the one that forked them. A slot is a lock, and dies with whoever held it.

LOOK_SECONDS: Final = 0.02
"""Between two looks for a free slot; a page takes seconds."""


class PageSlots:
    """Where the system has no files in memory, pages do not wait for each other."""

    def __init__(self, count: int) -> None:
        in_memory = hasattr(os, "memfd_create")
        self._files = [os.memfd_create("page slot") for _ in range(count)] if in_memory else []

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a free slot, and hold it. Opening a file again gives a lock of one's own."""
        handles = [os.open(f"/proc/self/fd/{file}", os.O_RDWR) for file in self._files]
        try:
            while handles and not any(map(_locked, handles)):
                time.sleep(LOOK_SECONDS)
            yield
        finally:
            for handle in handles:
                os.close(handle)


def _locked(handle: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


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
