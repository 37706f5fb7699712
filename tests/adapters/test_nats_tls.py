"""NATS over TLS, with a real server that shows a certificate and asks for one."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lucius.bootstrap.adapters.buses import open_bus
from lucius.bootstrap.adapters.unsupported import UnsupportedError
from lucius.core.errors import BusUnavailableError
from lucius.ports.bus import Message, Subscription
from lucius.settings import load_settings
from tests.nats_server import NatsServer

SECOND = timedelta(seconds=1)


class Authority:
    """Makes certificates, for a day."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        self.file = self._write("ca", self._signed(self._name, self._key, is_authority=True))

    def issued(self, name: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._write(name, self._signed(_name(name), key))
        private = self._folder / f"{name}.key"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, private

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        loopback = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(loopback, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self._folder / f"{name}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Iterator[NatsServer]:
    certificate, key = authority.issued("server")
    files = ("--tlscert", str(certificate), "--tlskey", str(key))
    server = NatsServer("--tls", *files, "--tlscacert", str(authority.file), "--tlsverify")
    server.start()
    yield server
    server.remove()


async def carried(server: NatsServer, **settings: str) -> list[str]:
    given = {"BUS_BACKEND": "nats", "NATS_URL": server.url, "SYSTEM": f"t-{uuid4().hex[:8]}"}
    bus = open_bus(load_settings({f"LUCIUS_{k}": v for k, v in {**given, **settings}.items()}))
    try:
        await bus.ensure([Subscription("t", "worker")])
        await bus.publish("t", [Message("m1", {"n": 1})])
        return [d.message.message_id for d in await bus.receive("worker", ["t"], 1, 30 * SECOND)]
    finally:
        await bus.close()


async def test_a_server_that_asks_for_a_certificate_is_served_over_tls(
    authority: Authority, server: NatsServer
) -> None:
    certificate, key = authority.issued("client")
    files = {"NATS_CA": str(authority.file)}
    shown = {"NATS_CERTIFICATE": str(certificate), "NATS_PRIVATE_KEY_PATH": str(key)}
    assert await carried(server, **files, **shown) == ["m1"]
    with pytest.raises(BusUnavailableError):
        await carried(server, **files)
    with pytest.raises(BusUnavailableError, match="LUCIUS_NATS_URL"):
        await carried(server, **shown)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"NATS_CERTIFICATE": "a.pem"}, "LUCIUS_NATS_PRIVATE_KEY_PATH"),
        ({"NATS_PRIVATE_KEY_PATH": "a.key"}, "LUCIUS_NATS_CERTIFICATE"),
        ({"NATS_CA": "nowhere.pem"}, "nowhere.pem"),
        ({"NATS_CERTIFICATE": "no.pem", "NATS_PRIVATE_KEY_PATH": "no.key"}, "no.pem"),
    ],
    ids=str,
)
def test_files_that_cannot_be_used_are_named_at_the_start(
    settings: dict[str, str], said: str
) -> None:
    given = {"BUS_BACKEND": "nats", **settings}
    with pytest.raises(UnsupportedError, match=said):
        open_bus(load_settings({f"LUCIUS_{k}": v for k, v in given.items()}))
