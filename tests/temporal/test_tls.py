"""Temporal over TLS: a front of the real server that shows a certificate, and asks for one."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from lucius.app.adapters import UnsupportedError
from lucius.app.temporal import open_workflows, place_of
from lucius.core.errors import WorkflowsUnavailableError
from lucius.core.job import JobState
from tests.certificates import Authority
from tests.temporal.server import TemporalServer, shared_server
from tests.temporal.world import ended, envelope, running, settings_of, submitted

pytestmark = pytest.mark.xdist_group("temporal")


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while said := await reader.read(65536):
            writer.write(said)
            await writer.drain()


@asynccontextmanager
async def front(server: TemporalServer, authority: Authority) -> AsyncIterator[str]:
    """Its address. Whoever shows no certificate of the authority is not let in."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.load_cert_chain(*authority.issued("server"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    host, _, port = server.address.rpartition(":")
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        back, forth = await asyncio.open_connection(host, port)
        ways = [asyncio.create_task(_pipe(*way)) for way in ((reader, forth), (back, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for each in (writer, forth):
                each.transport.abort()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    listener.close()
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


@pytest.mark.parametrize("both", [False, True], ids=["a key beside it", "both in one file"])
async def test_a_server_that_asks_for_a_certificate_is_served_over_tls(
    tmp_path: Path, both: bool
) -> None:
    """Starts, signals and workers alike: a job ends well."""
    authority, server = Authority(tmp_path), shared_server()
    await server.client()
    certificate, key = authority.issued("client")
    if both:
        certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
        key.unlink()
    async with front(server, authority) as address:
        settings = settings_of(
            tmp_path,
            server,
            LUCIUS_TEMPORAL_ADDRESS=address,
            LUCIUS_TEMPORAL_CA=str(authority.file),
            LUCIUS_TEMPORAL_CERTIFICATE=str(certificate),
        )
        async with running(settings) as (runtime, _):
            job = await ended(runtime, await submitted(runtime, envelope()))
            assert job.state is JobState.SUCCEEDED


@pytest.mark.parametrize("shown", ["no authority", "no certificate"])
async def test_who_does_not_know_the_server_or_shows_nothing_is_not_served(
    shown: str, tmp_path: Path
) -> None:
    authority, server = Authority(tmp_path), shared_server()
    await server.client()
    certificate, _ = authority.issued("client")
    given = {
        "no authority": {"LUCIUS_TEMPORAL_CERTIFICATE": str(certificate)},
        "no certificate": {"LUCIUS_TEMPORAL_CA": str(authority.file)},
    }[shown]
    async with front(server, authority) as address:
        settings = settings_of(tmp_path, server, LUCIUS_TEMPORAL_ADDRESS=address, **given)
        with pytest.raises(WorkflowsUnavailableError, match=address):
            await (await open_workflows(settings)).check()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"CERTIFICATE": "a.pem"}, r"a\.pem cannot be read"),
        ({"CA": "nowhere.pem"}, r"nowhere\.pem cannot be read"),
    ],
    ids=str,
)
def test_files_that_cannot_be_used_are_named_at_the_start(
    given: dict[str, str], said: str, tmp_path: Path
) -> None:
    named = {f"LUCIUS_TEMPORAL_{name}": text for name, text in given.items()}
    with pytest.raises(UnsupportedError, match=said):
        place_of(settings_of(tmp_path, None, **named))
