"""The server: one port that speaks AMQP to messaging clients and HTTP to administrators."""

import asyncio
import socket
from contextlib import suppress
from types import TracebackType
from typing import Final

from lucius.standins.service_bus.admin import AdminConnection
from lucius.standins.service_bus.broker import Broker
from lucius.standins.service_bus.codec import CodecError
from lucius.standins.service_bus.connection import Connection

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
