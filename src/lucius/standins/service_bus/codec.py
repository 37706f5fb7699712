"""The type system of AMQP 1.0: values to bytes and back.

What was decoded keeps its type, so that encoding it again gives the same value. Decimals and
characters are not supported: nobody sends them here.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID


class CodecError(ValueError):
    """Bytes that are not AMQP, or a type that is not supported."""


class Symbol(str):
    __slots__ = ()


class UByte(int):
    __slots__ = ()


class UShort(int):
    __slots__ = ()


class UInt(int):
    __slots__ = ()


class ULong(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970."""

    __slots__ = ()


class Float(float):
    __slots__ = ()


class Described(NamedTuple):
    descriptor: Any
    value: Any


class Array(NamedTuple):
    """Values of one type; `code` is the constructor of each."""

    code: int
    items: tuple[Any, ...]


_FIXED: Final[dict[int, tuple[str, Callable[[Any], Any]]]] = {
    0x50: (">B", UByte),
    0x51: (">b", Byte),
    0x52: (">B", UInt),
    0x53: (">B", ULong),
    0x54: (">b", Int),
    0x55: (">b", int),
    0x56: (">B", bool),
    0x60: (">H", UShort),
    0x61: (">h", Short),
    0x70: (">I", UInt),
    0x71: (">i", Int),
    0x72: (">f", Float),
    0x80: (">Q", ULong),
    0x81: (">q", int),
    0x82: (">d", float),
    0x83: (">q", Timestamp),
}
_EMPTY: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0)}
_SIZED: Final[dict[int, Callable[[bytes], Any]]] = {
    0xA0: bytes,
    0xB0: bytes,
    0xA1: lambda raw: raw.decode(),
    0xB1: lambda raw: raw.decode(),
    0xA3: lambda raw: Symbol(raw.decode("ascii")),
    0xB3: lambda raw: Symbol(raw.decode("ascii")),
}


class Reader:
    """Reads values one after another."""

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self.data = memoryview(data)
        self.at = at

    @property
    def done(self) -> bool:
        return self.at >= len(self.data)

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise CodecError("the data ends inside a value")
        found = bytes(self.data[self.at : end])
        self.at = end
        return found

    def value(self) -> Any:
        code = self.take(1)[0]
        if code == 0:
            return Described(self.value(), self.value())
        return self.of(code)

    def of(self, code: int) -> Any:
        """The value whose constructor was read already."""
        if code in _EMPTY:
            return _EMPTY[code]
        if code == 0x45:
            return []
        if code in _FIXED:
            shape, kind = _FIXED[code]
            return kind(struct.unpack(shape, self.take(struct.calcsize(shape)))[0])
        if code in _SIZED:
            return _SIZED[code](self.take(self._number(code >> 4 == 0xB)))
        if code == 0x98:
            return UUID(bytes=self.take(16))
        if code in (0xC0, 0xD0, 0xC1, 0xD1):
            return self._compound(code)
        if code in (0xE0, 0xF0):
            return self._array(wide=code == 0xF0)
        raise CodecError(f"type 0x{code:02x} is not supported")

    def _number(self, wide: bool) -> int:
        return int.from_bytes(self.take(4 if wide else 1), "big")

    def _compound(self, code: int) -> Any:
        wide = code in (0xD0, 0xD1)
        self._number(wide)
        values = [self.value() for _ in range(self._number(wide))]
        if code in (0xC0, 0xD0):
            return values
        return dict(zip(values[::2], values[1::2], strict=True))

    def _array(self, *, wide: bool) -> Array:
        self._number(wide)
        count = self._number(wide)
        code = self.take(1)[0]
        return Array(code, tuple(self.of(code) for _ in range(count)))


def decode(data: bytes) -> Any:
    return Reader(data).value()


_CODES: Final[dict[type, tuple[int, str]]] = {
    UByte: (0x50, ">B"),
    Byte: (0x51, ">b"),
    UShort: (0x60, ">H"),
    Short: (0x61, ">h"),
    UInt: (0x70, ">I"),
    Int: (0x71, ">i"),
    ULong: (0x80, ">Q"),
    int: (0x81, ">q"),
    Float: (0x72, ">f"),
    float: (0x82, ">d"),
    Timestamp: (0x83, ">q"),
}


def encode(value: Any) -> bytes:
    if value is None:
        return b"\x40"
    if value is True or value is False:
        return b"\x41" if value else b"\x42"
    kind = type(value)
    if kind is ULong and value < 256:
        return bytes((0x53, value))  # the SDK knows descriptors only in this form
    if kind in _CODES:
        code, shape = _CODES[kind]
        return bytes((code,)) + struct.pack(shape, value)
    if kind is Described:
        return b"\x00" + encode(value.descriptor) + encode(value.value)
    if kind is Array:
        return _array(value)
    if kind is UUID:
        return b"\x98" + bytes(value.bytes)
    if isinstance(value, Symbol):
        return _sized(0xA3, value.encode("ascii"))
    if isinstance(value, str):
        return _sized(0xA1, value.encode())
    if isinstance(value, bytes | bytearray | memoryview):
        return _sized(0xA0, bytes(value))
    if isinstance(value, list | tuple):
        return _compound(0xD0, [encode(each) for each in value])
    if isinstance(value, dict):
        return _compound(0xD1, [encode(part) for pair in value.items() for part in pair])
    raise CodecError(f"{kind.__name__} cannot be encoded")


def _sized(code: int, raw: bytes) -> bytes:
    if len(raw) < 256:
        return bytes((code, len(raw))) + raw
    return bytes((code + 0x10,)) + struct.pack(">I", len(raw)) + raw


def _compound(code: int, parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    return bytes((code,)) + struct.pack(">II", len(body) + 4, len(parts)) + body


def _array(value: Array) -> bytes:
    """Each item without its constructor, which is written once."""
    body = bytes((value.code,)) + b"".join(_bare(value.code, item) for item in value.items)
    return b"\xf0" + struct.pack(">II", len(body) + 4, len(value.items)) + body


def _bare(code: int, item: Any) -> bytes:
    if code in _FIXED:
        return struct.pack(_FIXED[code][0], item)
    if code == 0x98:
        return bytes(item.bytes)
    if code in _SIZED:
        raw = item.encode() if isinstance(item, str) else bytes(item)
        return len(raw).to_bytes(4 if code >> 4 == 0xB else 1, "big") + raw
    raise CodecError(f"an array of type 0x{code:02x} is not supported")
