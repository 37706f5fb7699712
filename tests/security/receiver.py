"""A receiver of webhooks over TLS on loopback, and a way to it from a host that looks public."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpcore
import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lucius.system.outside import GuardedBackend, SocketOptions, guarded_transport

HOST = "hooks.client.example"
PUBLIC_ADDRESS = "93.184.215.14"


@dataclass
class Received:
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers with `answers`, one after the other, the last one for ever."""

    folder: Path
    answers: Sequence[bytes] = (b"HTTP/1.1 204 No Content\r\n\r\n",)
    port: int = 0
    received: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event | None = None
    """Set it to have answers kept back until it is set."""
    name: str = HOST
    """What the resolver knows it as."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Receiver"]:
        self._certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "cert.pem", self.folder / "key.pem")
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            given = dict(line.split(": ", 1) for line in head[1:] if line)
            headers = {name.lower(): value for name, value in given.items()}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.received.append(Received(head[0].split(" ")[1], headers, body))
            self.arrived.set()
            if self.held is not None:
                await self.held.wait()
            turn = min(len(self.received), len(self.answers)) - 1
            writer.write(self.answers[turn])
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def transport(self) -> httpx.AsyncHTTPTransport:
        """The guarded transport, whose resolver and last hop are the test's."""
        context = ssl.create_default_context(cafile=str(self.folder / "cert.pem"))
        inner = Detour({PUBLIC_ADDRESS: ("127.0.0.1", self.port)})
        return guarded_transport(
            GuardedBackend(inner, names({self.name: [PUBLIC_ADDRESS]})), context
        )

    def _certificate(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self.folder / "key.pem").write_bytes(private)
        (self.folder / "cert.pem").write_bytes(certificate.public_bytes(pem))


class Detour(httpcore.AsyncNetworkBackend):
    """Leads some addresses elsewhere, remembers all that were dialled, and reaches nothing else."""

    def __init__(self, ways: dict[str, tuple[str, int]]) -> None:
        self._ways = ways
        self._real = httpcore.AnyIOBackend()
        self.dialled: list[str] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append(host)
        if host not in self._ways:
            raise httpcore.ConnectError(f"there is no way to {host}")
        return await self._real.connect_tcp(*self._ways[host], timeout)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("there is no way to a local socket")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Names:
    """A resolver. A name whose answers change gives one after the other."""

    def __init__(self, table: dict[str, list[str]], later: list[str] | None = None) -> None:
        self._table = table
        self._later = later
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        if host not in self._table:
            raise OSError(-2, "Name or service not known")
        return self._later if self._later is not None and self.asked > 1 else self._table[host]


def names(table: dict[str, list[str]], later: list[str] | None = None) -> Names:
    return Names(table, later)
