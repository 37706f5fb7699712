"""The type system of AMQP 1.0: values to bytes and back.

What was decoded keeps its type, so that encoding it again gives the same value. Decimals and
characters are not supported: nobody sends them here.
"""

import asyncio
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


# Frames and performatives of AMQP 1.0: what the two sides of a connection say to each other.

AMQP: Final = 0
SASL: Final = 1
HEADER: Final = {AMQP: b"AMQP\x00\x01\x00\x00", SASL: b"AMQP\x03\x01\x00\x00"}
MAX_FRAME: Final = 1024 * 1024
"""The longest frame that is taken."""


class Open(NamedTuple):
    container: Any = None
    hostname: Any = None
    max_frame_size: Any = None
    channel_max: Any = None
    idle_timeout: Any = None


class Begin(NamedTuple):
    remote_channel: Any = None
    next_outgoing_id: Any = None
    incoming_window: Any = None
    outgoing_window: Any = None
    handle_max: Any = None


class Attach(NamedTuple):
    name: Any = None
    handle: Any = None
    is_receiver: Any = None
    snd_settle_mode: Any = None
    rcv_settle_mode: Any = None
    source: Any = None
    target: Any = None
    unsettled: Any = None
    incomplete_unsettled: Any = None
    initial_delivery_count: Any = None
    max_message_size: Any = None
    offered: Any = None
    desired: Any = None
    properties: Any = None


class Flow(NamedTuple):
    next_incoming_id: Any = None
    incoming_window: Any = None
    next_outgoing_id: Any = None
    outgoing_window: Any = None
    handle: Any = None
    delivery_count: Any = None
    link_credit: Any = None
    available: Any = None
    drain: Any = None
    echo: Any = None


class Transfer(NamedTuple):
    handle: Any = None
    delivery_id: Any = None
    delivery_tag: Any = None
    message_format: Any = None
    settled: Any = None
    more: Any = None
    rcv_settle_mode: Any = None
    state: Any = None
    resume: Any = None
    aborted: Any = None


class Disposition(NamedTuple):
    is_receiver: Any = None
    first: Any = None
    last: Any = None
    settled: Any = None
    state: Any = None


class Detach(NamedTuple):
    handle: Any = None
    closed: Any = None
    error: Any = None


class End(NamedTuple):
    error: Any = None


class Close(NamedTuple):
    error: Any = None


class SaslMechanisms(NamedTuple):
    mechanisms: Any = None


class SaslInit(NamedTuple):
    mechanism: Any = None


class SaslOutcome(NamedTuple):
    code: Any = None


CODES: Final[dict[type, int]] = {
    Open: 0x10,
    Begin: 0x11,
    Attach: 0x12,
    Flow: 0x13,
    Transfer: 0x14,
    Disposition: 0x15,
    Detach: 0x16,
    End: 0x17,
    Close: 0x18,
    SaslMechanisms: 0x40,
    SaslInit: 0x41,
    SaslOutcome: 0x44,
}
_KINDS: Final = {code: kind for kind, code in CODES.items()}

RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x23, 0x24, 0x25, 0x26, 0x27


class Frame(NamedTuple):
    channel: int
    said: Any
    payload: bytes


def error(condition: str, description: str) -> Described:
    return Described(ULong(0x1D), [Symbol(condition), description, None])


def outcome(code: int, fields: list[Any] | None = None) -> Described:
    return Described(ULong(code), fields or [])


def packed(channel: int, said: Any, payload: bytes = b"", kind: int = AMQP) -> bytes:
    """A performative as one frame. Fields that are None at its end are left out."""
    fields = list(said)
    while fields and fields[-1] is None:
        fields.pop()
    body = encode(Described(ULong(CODES[type(said)]), fields)) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


EMPTY: Final = struct.pack(">IBBH", 8, 2, AMQP, 0)
"""Says only that one is still there."""


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next frame that says something."""
    while True:
        size, offset, _, channel = struct.unpack(">IBBH", await reader.readexactly(8))
        if not 8 <= size <= MAX_FRAME:
            raise CodecError(f"a frame of {size} bytes")
        body = (await reader.readexactly(size - 8))[offset * 4 - 8 :]
        if body:
            return _parsed(channel, body)


def _parsed(channel: int, body: bytes) -> Frame:
    reader = Reader(body)
    described = reader.value()
    kind = _KINDS.get(described.descriptor) if isinstance(described, Described) else None
    if kind is None:
        raise CodecError(f"an unknown performative: {described!r}")
    known = described.value[: len(kind._fields)]  # type: ignore[attr-defined]
    return Frame(channel, kind(*known), body[reader.at :])
