"""The pages of a PDF: their text layer where there is one, else a picture of the page."""

import math
from io import BytesIO
from typing import Any, Final

import numpy as np
import pypdfium2 as pdfium
from PIL import Image, ImageOps, UnidentifiedImageError
from pypdfium2.raw import FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY

from lucius.platform import FatalError
from lucius.services.sheets import (
    MAX_PIXELS,
    MAX_SIDE,
    PageChoice,
    Picture,
    Sheet,
    Sheets,
    has_words,
)

# Images as pages: PNG, JPEG, TIFF (one page a frame), WebP, BMP and GIF.

FORMATS: Final = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF")
WHITE: Final = (255, 255, 255)


def image_sheets(data: bytes, choice: PageChoice) -> Sheets:
    Image.MAX_IMAGE_PIXELS = None  # `_picture` looks before anything is unpacked
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            for number in choice.of(getattr(image, "n_frames", 1)):
                image.seek(number - 1)
                yield number, _picture_of_image(image)
    except (OSError, ValueError, SyntaxError, EOFError, UnidentifiedImageError) as error:
        raise FatalError(f"the image cannot be read: {error}", code="BROKEN_DOCUMENT") from error


def _picture_of_image(image: Image.Image) -> Picture:
    width, height = image.size
    if width < 1 or height < 1:
        raise ValueError(f"it is {width} pixels wide and {height} high")
    if width * height > MAX_PIXELS:
        raise FatalError(
            f"the image has {width} x {height} pixels; {MAX_PIXELS} are read at most",
            code="DOCUMENT_TOO_LARGE",
        )
    image.draft("RGB", (MAX_SIDE, MAX_SIDE))  # a JPEG is unpacked no larger than needed
    whole = image.convert("RGBA" if image.has_transparency_data else "RGB")
    whole.thumbnail((MAX_SIDE, MAX_SIDE))
    whole = ImageOps.exif_transpose(whole)
    paper = Image.new("RGB", whole.size, WHITE)
    paper.paste(whole, mask=whole if whole.mode == "RGBA" else None)
    return np.asarray(paper)[:, :, ::-1].copy()


POINTS_AN_INCH: Final = 72
DOTS_AN_INCH: Final = 200
TAIL: Final = 1024
"""The mark at the end of a file is within its last bytes."""


def pdf_sheets(data: bytes, choice: PageChoice) -> Sheets:
    if b"%%EOF" not in data[-TAIL:]:
        raise _broken("the PDF is cut off: it has no %%EOF at its end")
    document = _opened(data)
    try:
        for number in choice.of(len(document)):
            try:
                yield number, _sheet(document, number)
            except pdfium.PdfiumError as error:
                raise _broken(f"page {number} cannot be read: {error}") from error
    finally:
        document.close()


def _opened(data: bytes) -> Any:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code in (FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY):
            raise FatalError(
                "the PDF is encrypted: remove its password first", code="ENCRYPTED_DOCUMENT"
            ) from error
        raise _broken(f"the PDF cannot be opened: {error}") from error


def _broken(reason: str) -> FatalError:
    return FatalError(reason, code="BROKEN_DOCUMENT")


def _sheet(document: Any, number: int) -> Sheet:
    page = document[number - 1]
    try:
        text = _text(page)
        if has_words(text) or _blank(page):
            return text
        return _picture(page, number)
    finally:
        page.close()


def _text(page: Any) -> str:
    layer = page.get_textpage()
    try:
        raw: str = layer.get_text_bounded()
    finally:
        layer.close()
    unbroken = raw.replace("\r\n", "\n").replace("\ufffe\n", "").replace("\ufffe", "")
    return unbroken.replace("\0", "").strip()


def _blank(page: Any) -> bool:
    return next(iter(page.get_objects(max_depth=1)), None) is None


def _picture(page: Any, number: int) -> Picture:
    longer = max(page.get_size())
    if not 0 < longer < math.inf or min(page.get_size()) <= 0:
        raise _broken(f"page {number} has no size")
    scale = min(DOTS_AN_INCH / POINTS_AN_INCH, MAX_SIDE / longer)
    pixels: Picture = page.render(scale=scale).to_numpy()[:, :, :3].copy()
    return pixels
