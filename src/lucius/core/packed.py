"""JSON that is kept as text until it is needed: parsed, it may take thirty times the memory."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_parse: Final = json.JSONDecoder().decode


class Packed(Mapping[str, Any]):
    """A JSON object as its text.

    It reads like any mapping, but parses itself for every look: who needs more than one opens it.
    """

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = bytes(memoryview(text))
        """A copy: encoders hand out buffers that are much larger than what is in them."""

    def opened(self) -> dict[str, Any]:
        value: dict[str, Any] = _parse(self.text.decode())
        return value

    def __getitem__(self, key: str) -> Any:
        return self.opened()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened())

    def __len__(self) -> int:
        return len(self.opened())

    def __repr__(self) -> str:
        return f"Packed({len(self.text)} bytes)"


def opened(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return value.opened() if isinstance(value, Packed) else value
