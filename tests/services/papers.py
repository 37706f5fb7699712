"""Documents for tests: PDFs with text, scans, images, and those that something is wrong with."""

import zlib
from collections.abc import Sequence
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

GREY, INK = 245, 30


def scanned(lines: Sequence[str], *, width: int = 900, turned: float = 0.3) -> Image.Image:
    """A page as a scanner would see it, not quite straight."""
    size = 26
    page = Image.new("L", (width, 80 + len(lines) * 42), GREY)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(size)
    for number, line in enumerate(lines):
        draw.text((50, 40 + number * 42), line, fill=INK, font=font)
    return page.rotate(turned, fillcolor=GREY, resample=Image.Resampling.BICUBIC)


def image_bytes(image: Image.Image, kind: str = "PNG") -> bytes:
    file = BytesIO()
    image.save(file, kind)
    return file.getvalue()


def pdf(*objects: bytes, trailer: bytes = b"") -> bytes:
    """A well-formed file of these objects; the first one is the catalogue."""
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return (
        body + b"xref\n0 %d\n0000000000 65535 f \n" % size + table
        + b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n"
        % (size, trailer, len(body))
    )  # fmt: skip


CATALOGUE = b"<< /Type /Catalog /Pages 2 0 R >>"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def text_pdf(*pages: str, trailer: bytes = b"") -> bytes:
    """One line of text a page; an empty page has nothing on it."""
    kids, objects = [], []
    for number, text in enumerate(pages):
        place = 4 + 2 * number
        kids.append(b"%d 0 R" % place)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R"
            b" /Resources << /Font << /F 3 0 R >> >> >>" % (place + 1)
        )
        shown = b"BT /F 12 Tf 50 700 Td (%s) Tj ET" % text.encode() if text else b""
        objects.append(stream(shown))
    tree = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    return pdf(CATALOGUE, tree, FONT, *objects, trailer=trailer)


def encrypted_pdf() -> bytes:
    locked = b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -4 >>" % (b"ab" * 32, b"cd" * 32)
    return text_pdf("secret", trailer=b"/Encrypt %s /ID [<00> <00>]" % locked)


def page_with_image(
    width: int, height: int, packed: bytes, *, side: float = 600, pages: int = 1
) -> bytes:
    """Pages that all show one grey image; `packed` is what is stored of it."""
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %g %g] /Contents 3 0 R"
        b" /Resources << /XObject << /I 4 0 R >> >> >>" % (side, side)
    )
    entries = (
        b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray"
        b" /BitsPerComponent 8 /Filter /FlateDecode" % (width, height)
    )
    shown = stream(b"q %g 0 0 %g 0 0 cm /I Do Q" % (side, side))
    kids = b" ".join(b"%d 0 R" % number for number in range(5, 5 + pages))
    tree = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, pages)
    return pdf(CATALOGUE, tree, shown, stream(packed, entries), *[page] * pages)


def long_scan(pages: int) -> bytes:
    """A small file with many pages of the same scan."""
    image = scanned(["Every page of this says the same."] * 12)
    packed = zlib.compress(image.tobytes())
    return page_with_image(image.width, image.height, packed, pages=pages)


def zeros(count: int) -> bytes:
    """So many zeros, packed to a thousandth."""
    packer, block = zlib.compressobj(9), bytes(1 << 20)
    parts = [packer.compress(block) for _ in range(count >> 20)]
    return b"".join([*parts, packer.compress(bytes(count & 0xFFFFF)), packer.flush()])
