"""Frames and performatives of AMQP 1.0: what the two sides of a connection say to each other."""

import asyncio
import struct
from typing import Any, Final, NamedTuple

from lucius.standins.service_bus.codec import (
    CodecError,
    Described,
    Reader,
    Symbol,
    ULong,
    encode,
)

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
