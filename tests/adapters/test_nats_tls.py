"""NATS over TLS, with a real server that shows a certificate and asks for one."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from lucius.bootstrap.adapters.buses import open_bus
from lucius.bootstrap.adapters.unsupported import UnsupportedError
from lucius.core.errors import BusUnavailableError
from lucius.ports.bus import Message, Subscription
from lucius.settings import load_settings
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
    authority: Authority, server: NatsServer
) -> None:
    certificate, _ = authority.issued("client")
    files = {"NATS_CA": str(authority.file)}
    shown = {"NATS_CERTIFICATE": str(certificate)}
    assert await carried(server, **files, **shown) == ["m1"]
    with pytest.raises(BusUnavailableError):
        await carried(server, **files)
    with pytest.raises(BusUnavailableError, match="LUCIUS_NATS_URL"):
        await carried(server, **shown)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"NATS_CA": "nowhere.pem"}, "nowhere.pem"),
        ({"NATS_CERTIFICATE": "no.pem"}, "no.pem"),
    ],
    ids=str,
)
def test_files_that_cannot_be_used_are_named_at_the_start(
    settings: dict[str, str], said: str
) -> None:
    given = {"BUS_BACKEND": "nats", **settings}
    with pytest.raises(UnsupportedError, match=said):
        open_bus(load_settings({f"LUCIUS_{k}": v for k, v in given.items()}))
