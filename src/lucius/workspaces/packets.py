"""Values both ways over a socket between two processes of ours: those of one turn of the loop go together."""

import asyncio
import pickle
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, cast

LENGTH: Final = Struct("!I")


class Packets(asyncio.Protocol):
    """`received` is called with each value, `lost` once the other side has gone.

    The other side is trusted: it is the same program, and nobody else holds the socket.
    """

    def __init__(self, received: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._buffer = bytearray()
        self._waiting: list[Any] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()

    def send(self, value: Any) -> None:
        """What is sent after the connection is lost is dropped."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(value)

    def _flush(self) -> None:
        values, self._waiting = self._waiting, []
        if self._transport is not None:
            content = pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
            self._transport.writelines((LENGTH.pack(len(content)), content))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            values = pickle.loads(memoryview(self._buffer)[LENGTH.size : end].tobytes())
            del self._buffer[:end]
            for value in values:
                self._received(value)

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()
