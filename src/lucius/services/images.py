"""Images as pages: PNG, JPEG, TIFF (one page a frame), WebP, BMP and GIF."""

from io import BytesIO
from typing import Final

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from lucius.platform import FatalError
from lucius.services.limits import MAX_PIXELS, MAX_SIDE
from lucius.services.page_choice import PageChoice
from lucius.services.sheets import Picture, Sheets

FORMATS: Final = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF")
WHITE: Final = (255, 255, 255)


def image_sheets(data: bytes, choice: PageChoice) -> Sheets:
    Image.MAX_IMAGE_PIXELS = None  # `_picture` looks before anything is unpacked
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            for number in choice.of(getattr(image, "n_frames", 1)):
                image.seek(number - 1)
                yield number, _picture(image)
    except (OSError, ValueError, SyntaxError, EOFError, UnidentifiedImageError) as error:
        raise FatalError(f"the image cannot be read: {error}", code="BROKEN_DOCUMENT") from error


def _picture(image: Image.Image) -> Picture:
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
