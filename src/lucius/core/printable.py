"""Foreign text made safe to print: what could steer a terminal or forge a line is shown as an escape.

Whoever writes to a terminal or a text log calls `printable` on every text that came from outside.
"""

import re
from typing import Final

_UNPRINTABLE: Final = (
    "\x7f-\x9f"  # DEL and C1
    "\xad\u200b\u2060-\u2064\ufeff\ufff9-\ufffb"  # invisible
    "\u061c\u180e\u200e\u200f\u202a-\u202e\u2066-\u206f"  # the direction of writing
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # lone surrogates, which no stream can encode
    "\U000e0000-\U000e007f"  # tags
)
_IN_TEXT: Final = re.compile(f"[\x00-\x1f{_UNPRINTABLE}]")
_IN_JSON: Final = re.compile(f"[{_UNPRINTABLE}]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would act on."""
    return text if text.isprintable() else _IN_TEXT.sub(_escape, text)


def printable_lines(text: str) -> str:
    """The same, for text of our own that has several lines."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """A JSON document with the same content: what JSON allows and a terminal would act on is escaped.

    The control characters below 0x20 are escaped by every JSON encoder; outside of strings they are
    the encoder's own line breaks.
    """
    return text if text.isascii() and "\x7f" not in text else _IN_JSON.sub(_json_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
