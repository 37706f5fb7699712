"""The text of simple PDF files: pages with plain or Flate-compressed content and single-byte fonts.

It does not recognise images, and refuses what it cannot read: encryption, object streams, other filters.
"""

import re
import zlib
from collections.abc import Iterator
from typing import Final

MAX_STREAM: Final = 64 * 1024 * 1024
"""What one stream may unpack to: a small file must not fill the memory."""
MAX_DEPTH: Final = 32
TAIL: Final = 1024
"""The mark at the end of a file is within its last bytes."""

_OBJECT: Final = re.compile(rb"(?<!\d)(\d+)\s+(\d+)\s+obj\b(.*?)\bendobj\b", re.S)
_STREAM: Final = re.compile(rb"stream\r?\n(.*?)\r?\n?endstream", re.S)
_REFERENCE: Final = re.compile(rb"(\d+)\s+\d+\s+R\b")
_TOKEN: Final = re.compile(
    rb"\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\)"  # a string, with one level of brackets inside
    rb"|<[0-9A-Fa-f\s]*>|\[|\]|/[^\s/<>\[\]()]*|[-+.\d]+|[A-Za-z'\"*]+",
    re.S,
)
_ESCAPE: Final = re.compile(rb"\\([0-7]{1,3}|\r\n|.)", re.S)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_NEW_LINE: Final = {b"Td", b"TD", b"T*", b"Tm", b"ET", b"'", b'"'}
_SHOW: Final = {b"Tj", b"TJ", b"'", b'"'}
_WORD_GAP: Final = -200.0
"""In an array of strings, a step back of more than this is a space."""


class UnreadablePdfError(ValueError):
    """Not a PDF, or one with features that are not supported here."""


def pdf_pages(data: bytes, limit: int | None = None) -> list[str]:
    """The text of each page, in order."""
    if not data.startswith(b"%PDF-"):
        raise UnreadablePdfError("the file does not begin like a PDF")
    if b"/Encrypt" in data:
        raise UnreadablePdfError("encrypted files are not supported")
    if b"%%EOF" not in data[-TAIL:]:
        raise UnreadablePdfError("the file is cut off: it has no %%EOF at its end")
    objects = {int(number): body for number, _, body in _OBJECT.findall(data)}
    roots = [n for n, body in objects.items() if _is(body, b"Pages") and b"/Parent" not in body]
    if not roots:
        raise UnreadablePdfError("no page tree was found (compressed object streams?)")
    pages = list(_pages(objects, roots[-1], 0))[:limit]
    return [_text(_content(objects, page)) for page in pages]


def _is(body: bytes, kind: bytes) -> bool:
    return re.search(rb"/Type\s*/" + kind + rb"\b", body) is not None


def _pages(objects: dict[int, bytes], number: int, depth: int) -> Iterator[bytes]:
    body = objects.get(number, b"")
    if depth > MAX_DEPTH:
        raise UnreadablePdfError("the page tree is too deep")
    if _is(body, b"Page"):
        yield body
        return
    kids = re.search(rb"/Kids\s*\[(.*?)\]", body, re.S)
    for kid in _REFERENCE.findall(kids.group(1) if kids else b""):
        yield from _pages(objects, int(kid), depth + 1)


def _content(objects: dict[int, bytes], page: bytes) -> bytes:
    named = re.search(rb"/Contents\s*(\[.*?\]|\d+\s+\d+\s+R)", page, re.S)
    references = _REFERENCE.findall(named.group(1)) if named else []
    return b"\n".join(_stream(objects.get(int(number), b"")) for number in references)


def _stream(body: bytes) -> bytes:
    found = _STREAM.search(body)
    if found is None:
        raise UnreadablePdfError("a page has no content stream")
    head, raw = body[: found.start()], found.group(1)
    if b"/Filter" not in head:
        return raw
    if re.search(rb"/Filter\s*\[?\s*/FlateDecode\s*\]?\s*(/|>>)", head) is None:
        raise UnreadablePdfError("only Flate compression is supported")
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(raw, MAX_STREAM)
    except zlib.error as error:
        raise UnreadablePdfError(f"a stream is damaged: {error}") from error
    if unpacker.unconsumed_tail:
        raise UnreadablePdfError("a stream is too large")
    if not unpacker.eof:
        raise UnreadablePdfError("a stream is cut off")
    return content


def _text(content: bytes) -> str:
    """What the text operators show, with a line for each move to a new line."""
    shown: list[str] = []
    operands: list[bytes] = []
    for match in _TOKEN.finditer(content):
        token = match.group()
        if not token[:1].isalpha() and token not in _NEW_LINE:
            operands.append(token)
            continue
        if token in _NEW_LINE:
            shown.append("\n")
        if token in _SHOW:
            shown.extend(_shown(operands))
        operands.clear()
    lines = (" ".join(line.split()) for line in "".join(shown).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _shown(operands: list[bytes]) -> Iterator[str]:
    inside = False
    for operand in operands:
        if operand in (b"[", b"]"):
            inside = operand == b"["
        elif operand[:1] == b"(":
            yield _literal(operand[1:-1])
        elif operand[:1] == b"<":
            yield _decoded(bytes.fromhex(_even(operand[1:-1])))
        elif inside and _number(operand) < _WORD_GAP:
            yield " "


def _even(digits: bytes) -> str:
    text = "".join(digits.decode("ascii").split())
    return text + "0" * (len(text) % 2)


def _number(token: bytes) -> float:
    try:
        return float(token)
    except ValueError:
        return 0.0


def _literal(raw: bytes) -> str:
    return _decoded(_ESCAPE.sub(lambda found: _unescaped(found.group(1)), raw))


def _unescaped(code: bytes) -> bytes:
    if code[:1].isdigit():
        return bytes([int(code, 8) & 0xFF])
    if code in (b"\n", b"\r", b"\r\n"):
        return b""
    return _ESCAPED.get(code, code)


def _decoded(raw: bytes) -> str:
    if raw.startswith(b"\xfe\xff"):
        return raw[2:].decode("utf-16-be", errors="replace")
    return raw.decode("cp1252", errors="replace")
