"""Hostile texts, and documents that have one in every field where a server could send one."""

import types
from typing import Annotated, Any, Final, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel

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


def filled(kind: Any, text: str) -> Any:
    """A document of this model with the text wherever a text may stand."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        return {name: filled(field.annotation, text) for name, field in fields}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return text if str in inner else filled(inner[0], text)
    if origin is Annotated:
        return filled(inner[0], text)
    if origin is list:
        return [filled(inner[0], text)] * 2
    if origin is dict:
        return {text: filled(inner[1], text)}
    if kind in (int, bool, float):
        return kind(1)
    if kind is AwareDatetime:
        return INSTANT
    return text if kind is str else {"uri": text}
