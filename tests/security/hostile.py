"""Hostile texts, and documents that have one in every field where a server could send one."""

import types
from typing import Any, Final, NotRequired, Union, get_args, get_origin

from hypothesis import strategies as st
from typing_extensions import get_type_hints, is_typeddict

INSTANT: Final = "2026-01-01T00:00:00Z"
CONTROLS: Final = (
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *map(chr, (0x61C, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029)),
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2066, 0x206A)),
    "\ufeff",
    "\U000e0041",
)
CLEAR: Final = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2028\r\n2026-01-01 forged\x7f"
"""Clears the screen, names the window, colours, turns the direction, forges a line."""

texts: Final = st.text(
    st.one_of(st.sampled_from(CONTROLS), st.sampled_from("ab[]é漢 ")), min_size=1, max_size=12
)


def assert_harmless(shown: str) -> None:
    """Only line breaks of our own, and nothing that steers a terminal."""
    bad = {character for character in shown if character in CONTROLS} - {"\n"}
    assert not bad, f"{bad!r} in {shown!r}"


def filled(shape: Any, text: str, name: str = "") -> Any:
    """A document of this shape with the text wherever a text may stand."""
    if is_typeddict(shape):
        hints = get_type_hints(shape, include_extras=True)
        return {field: filled(kind, text, field) for field, kind in hints.items()}
    origin, inner = get_origin(shape), get_args(shape)
    if origin is NotRequired or origin in (Union, types.UnionType):
        return filled(inner[0], text, name)
    if origin is list:
        return [filled(inner[0], text, name)] * 2
    if origin is dict:
        return {text: filled(inner[1], text, name)}
    if shape in (int, bool, float):
        return shape(1)
    if shape is str:
        return INSTANT if name.endswith(("_at", "_seen")) or name in ("at", "since") else text
    return {"uri": text}
