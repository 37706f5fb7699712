"""JSON values both ways over a socket between two processes: those of one turn of the loop go together."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, cast

import orjson

from lucius.core.record import Packed

log = logging.getLogger("lucius.buses.packets")
MOST: Final = 2**20
"""Bytes of one packet, four times what a message may have on any bus. A longer one ends the connection."""
_LENGTH: Final = Struct("!I")


class NotSendableError(ValueError):
    """A value is not JSON, or too large."""


def encoded(value: Any) -> bytes:
    try:
        content = orjson.dumps(value, default=_plain)
    except TypeError as error:
        raise NotSendableError(f"it is not JSON: {error}") from error
    if len(content) > MOST - 2:
        raise NotSendableError(f"it has {len(content)} bytes: at most {MOST - 2} are allowed")
    return content


def _plain(value: Any) -> Any:
    """JSON that is text already stays as it is."""
    return orjson.Fragment(value.text) if isinstance(value, Packed) else dict(value)


def packet(values: Sequence[bytes]) -> bytes:
    """What the other side receives together."""
    content = b"[%s]" % b",".join(values)
    return _LENGTH.pack(len(content)) + content


class Packets(asyncio.Protocol):
    """`received` is called with the values of each packet, `lost` once the other side has gone."""

    def __init__(self, received: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._buffer = bytearray()
        self._waiting: list[bytes] = []
        self._capacity = MOST
        """Bytes that the packet which is being filled has left."""
        self._unsent: list[asyncio.Future[None]] = []
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    # -- sending -----------------------------------------------------------------------------

    def send(self, value: Any) -> None:
        """With what else is sent in this turn of the loop. NotSendableError: nothing is sent."""
        self.put(encoded(value))

    def put(self, content: bytes) -> None:
        """Send a value that is encoded already."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        if len(content) + 2 > self._capacity:
            self._write()
        self._waiting.append(content)
        self._capacity -= len(content) + 1

    async def sent(self) -> None:
        """Return when the system has what was sent so far: it arrives then, though this process may die.

        ConnectionError: the other side has gone.
        """
        if self._transport is None:
            raise ConnectionResetError("the other side has gone")
        unsent = self._loop.create_future()
        self._unsent.append(unsent)
        await unsent

    def _write(self) -> None:
        values, self._waiting, self._capacity = self._waiting, [], MOST
        if self._transport is not None and values:
            self._transport.write(packet(values))

    def _flush(self) -> None:
        self._write()
        if not self._paused:
            self._settle(None)

    def _settle(self, error: Exception | None) -> None:
        unsent, self._unsent = self._unsent, []
        for each in unsent:
            if each.done():
                continue  # whoever waited has gone
            if error is None:
                each.set_result(None)
            else:
                each.set_exception(error)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if not self._waiting:
            self._settle(None)

    # -- receiving ---------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is kept in this process that the system could take."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._settle(ConnectionResetError("the other side has gone"))
        self._lost()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            size = _LENGTH.unpack_from(self._buffer)[0]
            if size > MOST:
                self._break_off(f"a packet of {size} bytes: at most {MOST} are allowed")
                return
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                return
            values = self._values(memoryview(self._buffer)[_LENGTH.size : end])
            if values is None:
                return
            del self._buffer[:end]
            self._received(values)

    def _values(self, content: memoryview) -> list[Any] | None:
        try:
            values = orjson.loads(content)
        except ValueError as error:
            values = error
        if isinstance(values, list):
            return values
        content.release()
        self._break_off(f"a packet that is no list of JSON values: {values!r:.100}")
        return None

    def _break_off(self, why: str) -> None:
        """Nobody knows where the next packet begins."""
        log.error("the process at the other side is given up: it has sent %s", why)
        self._buffer.clear()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """What was sent still goes out."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
