"""The server: one port that speaks AMQP to messaging clients and HTTP to administrators."""

import asyncio
import socket
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from lucius.dev.standins.service_bus import codec
from lucius.dev.standins.service_bus.admin import AdminConnection
from lucius.dev.standins.service_bus.broker import Broker, Grant
from lucius.dev.standins.service_bus.codec import (
    AMQP,
    SASL,
    Array,
    Begin,
    Close,
    CodecError,
    End,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Symbol,
    UByte,
    UInt,
    UShort,
    packed,
    read_frame,
)
from lucius.dev.standins.service_bus.links import OutgoingLink
from lucius.dev.standins.service_bus.session import Session

# One connection of a client: SASL, then frames for its sessions, until either side ends it.


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
            if header == codec.HEADER[SASL]:
                await self._authenticate()
                header = await self._reader.readexactly(8)
            if header == codec.HEADER[AMQP]:
                self._writer.write(codec.HEADER[AMQP])
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
        self._writer.write(codec.HEADER[SASL])
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
        self.say(0, Open("service-bus-stand-in", None, UInt(codec.MAX_FRAME), UShort(0xFFFF), None))

    async def _beat(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            self._writer.write(codec.EMPTY)

    def say(self, channel: int, said: Any, payload: bytes = b"") -> None:
        if not self._writer.is_closing():
            self._writer.write(packed(channel, said, payload))


HOST: Final = "127.0.0.1"


class StandIn:
    """`async with StandIn() as stand_in:` serves until left. A broker may outlive its server."""

    def __init__(self, broker: Broker | None = None, *, host: str = HOST, port: int = 0) -> None:
        self.broker = broker or Broker()
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._starting: asyncio.Task[None] | None = None
        self._serving = False

    @property
    def port(self) -> int:
        """Once started, the one that was free."""
        return self._port

    @property
    def connection_string(self) -> str:
        """As the SDK takes it; the last part makes it do without TLS."""
        name, policy = next(iter(self.broker.access.policies.items()))
        return self.connection_as(name, policy.key)

    def connection_as(self, policy: str, key: str) -> str:
        key = f"SharedAccessKeyName={policy};SharedAccessKey={key}"
        return f"Endpoint=sb://{self._host}:{self._port};{key};UseDevelopmentEmulator=true;"

    async def start(self) -> None:
        listening = self._listen()
        self._server = await asyncio.start_server(self._accept, sock=listening)

    def _listen(self) -> socket.socket:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((self._host, self._port))
        listening.listen()
        self._port = listening.getsockname()[1]
        self._serving = True
        return listening

    def cut_off(self) -> None:
        """As a crash: connections break at once, and nobody listens. Locks stay."""
        self._serving = False
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._clients.values():
            writer.transport.abort()

    def restore(self) -> None:
        """Clients may connect as soon as this returns."""
        listening = self._listen()

        async def serve() -> None:
            self._server = await asyncio.start_server(self._accept, sock=listening)

        self._starting = asyncio.create_task(serve())

    async def stop(self) -> None:
        self.cut_off()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def __aenter__(self) -> "StandIn":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Known at once: a stop closes it too, whether it comes before its task begins or before this."""
        if not self._serving:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._clients[task] = writer
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._clients.pop(task).transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, CodecError):
            head = await reader.readexactly(8)
            if head.startswith(b"AMQP"):
                await Connection(self.broker, reader, writer).run(head)
            else:
                await AdminConnection(self.broker, reader, writer).run(head)
