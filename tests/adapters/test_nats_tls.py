"""NATS over TLS, with a real server that shows a certificate and asks for one."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from lucius.app.adapters import UnsupportedError, open_bus
from lucius.app.settings import load_settings
from lucius.core.errors import BusUnavailableError
from lucius.ports.bus import Message, Subscription
from tests.certificates import Authority
from tests.nats_server import NatsServer

SECOND = timedelta(seconds=1)


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
    authority: Authority, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, _ = authority.issued("client")
    shown = {"NATS_CREDENTIALS": str(certificate)}
    with pytest.raises(BusUnavailableError, match="LUCIUS_NATS_URL"):
        await carried(server, **shown)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    assert await carried(server, **shown) == ["m1"]
    with pytest.raises(BusUnavailableError):
        await carried(server, NATS_URL=server.url.replace("nats:", "tls:"))


def opened(*files: Path) -> None:
    names = ",".join(map(str, files))
    open_bus(load_settings({"LUCIUS_BUS_BACKEND": "nats", "LUCIUS_NATS_CREDENTIALS": names}))


def test_files_that_cannot_be_used_are_named_at_the_start(authority: Authority) -> None:
    with pytest.raises(UnsupportedError, match=r"no\.pem"):
        opened(Path("no.pem"))
    certificate, key = authority.issued("client")
    with pytest.raises(UnsupportedError, match="several files of one kind"):
        opened(certificate, authority.file)
    key.unlink()
    with pytest.raises(UnsupportedError, match="beside it in one that ends"):
        opened(certificate)
