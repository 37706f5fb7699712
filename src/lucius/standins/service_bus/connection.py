"""One connection of a client: SASL, then frames for its sessions, until either side ends it."""

import asyncio
from typing import Any

from lucius.standins.service_bus import frames
from lucius.standins.service_bus.access import Grant
from lucius.standins.service_bus.broker import Broker
from lucius.standins.service_bus.codec import Array, Symbol, UByte, UInt, UShort
from lucius.standins.service_bus.frames import (
    AMQP,
    SASL,
    Begin,
    Close,
    End,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    packed,
    read_frame,
)
from lucius.standins.service_bus.links import OutgoingLink
from lucius.standins.service_bus.session import Session


class Connection:
    """Runs until the client goes. `broker` is shared with all others."""

    def __init__(
        self, broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.broker = broker
        self._reader = reader
        self._writer = writer
        self._sessions: dict[int, Session] = {}
        self.grants: dict[str, Grant] = {}
        """What the tokens that were shown to `$cbs` allow, by path."""
        self.max_frame_size = 65536
        self.answers: dict[str, OutgoingLink] = {}
        """Where the answers of a node go out, by its address."""
        self._beating: asyncio.Task[None] | None = None

    async def run(self, header: bytes) -> None:
        try:
            if header == frames.HEADER[SASL]:
                await self._authenticate()
                header = await self._reader.readexactly(8)
            if header == frames.HEADER[AMQP]:
                self._writer.write(frames.HEADER[AMQP])
                await self._serve()
        finally:
            for session in self._sessions.values():
                session.end()
            if self._beating is not None:
                self._beating.cancel()

    async def _authenticate(self) -> None:
        """Anyone may come in: tokens are shown to `$cbs` afterwards."""
        names = [Symbol(name) for name in ("MSSBCBS", "ANONYMOUS", "EXTERNAL", "PLAIN")]
        listed = Array(0xB3, tuple(names))
        self._writer.write(frames.HEADER[SASL])
        self._writer.write(packed(0, SaslMechanisms(listed), kind=SASL))
        said = (await read_frame(self._reader)).said
        assert isinstance(said, SaslInit)
        self._writer.write(packed(0, SaslOutcome(UByte(0)), kind=SASL))

    async def _serve(self) -> None:
        while True:
            frame = await read_frame(self._reader)
            match frame.said:
                case Open() as said:
                    self._opened(said)
                case Begin() as said:
                    self._sessions[frame.channel] = Session(self, frame.channel, said)
                case End():
                    self._sessions.pop(frame.channel).end()
                    self.say(frame.channel, End())
                case Close():
                    self.say(0, Close())
                    return
                case said if frame.channel in self._sessions:
                    self._sessions[frame.channel].take(said, frame.payload)
                case _:
                    pass  # late words of a session that has ended
            await self._writer.drain()

    def _opened(self, said: Open) -> None:
        self.max_frame_size = min(said.max_frame_size or 65536, 65536)
        if said.idle_timeout:
            self._beating = asyncio.create_task(self._beat(said.idle_timeout / 2000))
        self.say(
            0, Open("service-bus-stand-in", None, UInt(frames.MAX_FRAME), UShort(0xFFFF), None)
        )

    async def _beat(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            self._writer.write(frames.EMPTY)

    def say(self, channel: int, said: Any, payload: bytes = b"") -> None:
        if not self._writer.is_closing():
            self._writer.write(packed(channel, said, payload))
