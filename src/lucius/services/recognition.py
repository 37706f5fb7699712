"""Reads pictures of pages with an OCR model that comes inside its package: English and Chinese."""

from functools import cache
from itertools import pairwise
from typing import Any, Final

from lucius.services.sheets import Picture

LANGUAGES: Final = ("en", "zh")
DETECTION_SIDE: Final = 1280
"""Pixels of the longer side when lines are looked for; they are read at full size."""
WIDENED: Final = 2.8
"""How far a line's box goes beyond its letters. With less, spaces between words are lost."""
PARAGRAPH: Final = 0.9
"""A gap of more than this part of a line's height begins a paragraph."""

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
        found, _ = model(picture)
        self._idle.append(model)
        return _in_lines(found or [])

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
    from rapidocr_onnxruntime import RapidOCR

    cv2.setNumThreads(1)
    return RapidOCR(
        intra_op_num_threads=1,
        inter_op_num_threads=1,
        det_limit_type="max",
        det_limit_side_len=DETECTION_SIDE,
        det_unclip_ratio=WIDENED,
        rec_batch_num=1,
    )


def _in_lines(found: list[Any]) -> str:
    """Boxes of one height are one line; a wide gap between lines begins a paragraph."""
    lines: list[tuple[float, float, str]] = []
    for box, text, _ in found:
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
