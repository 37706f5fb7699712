"""The identity of a pod, for all four services: its token is exchanged, and what it gets opens each of them.

The authority is a fake on loopback; what asks it is the real credential of the SDK, over TLS.
"""

import asyncio
import os
import ssl
import sys
from asyncio.subprocess import PIPE
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import time

import orjson
import pytest
from aiohttp import web

from lucius.app.azure_stack import create_container
from lucius.dev.standins.service_bus import Broker, StandIn
from lucius.dev.standins.service_bus.broker import EVERYTHING, Access, Grant
from tests.azurite_server import Azurite
from tests.certificates import Authority

Handler = Callable[[web.Request], Awaitable[web.Response]]
CHILD = Path(__file__).with_name("identity_child.py")
SUBJECT = "the token of the pod"
TENANT = "11111111-1111-1111-1111-111111111111"
STORAGE = "https://storage.azure.com"
CONFIGURATION = "https://appconfig.azure.com"
BUS = "https://servicebus.azure.net"


def token_for(audience: str) -> str:
    now = int(time())
    claims = {
        "aud": audience,
        "iss": f"https://sts.windows.net/{TENANT}/",
        "iat": now,
        "nbf": now - 60,
        "exp": now + 3600,
    }
    parts = [orjson.dumps(each) for each in ({"alg": "none", "typ": "JWT"}, claims)]
    return ".".join(urlsafe_b64encode(each).decode().rstrip("=") for each in (*parts, b"signed"))


class TokenService:
    """Exchanges the token of the pod for one of the service that is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def exchange(self, request: web.Request) -> web.Response:
        said = await request.post()
        assert said["client_assertion"] == SUBJECT
        audience = str(said["scope"]).removesuffix("/.default").rstrip("/")
        self.asked.append(audience)
        body = {
            "access_token": token_for(audience),
            "token_type": "Bearer",
            "expires_in": 3600,
        }
        return web.json_response(body)


class Bearers(Access):
    """Takes tokens of Entra ID for Service Bus, and none that a key has signed."""

    def granted(self, token: str) -> Grant | None:
        return Grant(EVERYTHING) if audience_of(token) == BUS else None


def audience_of(token: str) -> object:
    """None: it is none of ours."""
    parts = token.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return None
    claims = orjson.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    return claims["aud"]


class Site:
    """Where the services of one test are, with certificates that the child trusts."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.authority = Authority(folder)
        self.certificate = self.authority.issued("server")
        self.tokens = TokenService()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*self.certificate)

    async def served(self, method: str, path: str, answers: Handler) -> str:
        app = web.Application()
        app.router.add_route(method, path, answers)
        runner = web.AppRunner(app)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        return f"127.0.0.1:{runner.addresses[0][1]}"

    async def encrypted(self, port: int) -> str:
        """What is sent here over TLS goes to that port without."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            behind = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(carried(reader, behind[1]), carried(behind[0], writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self._tls)
        self._stack.callback(server.close)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def azurite(self) -> Azurite:
        server = Azurite(self.certificate)
        self._stack.callback(server.stop)
        return server

    async def run(self, part: str, place: str) -> tuple[str, str]:
        """What a process with the identity of its pod prints about one service, and what it warns of."""
        token_file = self._folder / "token"
        token_file.write_text(SUBJECT)
        authority = await self.served("POST", "/{path:.*}", self.tokens.exchange)
        given = {
            "AZURE_AUTHORITY_HOST": f"https://{authority}",
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": "lucius",
            "AZURE_FEDERATED_TOKEN_FILE": str(token_file),
            "SSL_CERT_FILE": str(self.authority.file),
            "REQUESTS_CA_BUNDLE": str(self.authority.file),
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            str(CHILD),
            part,
            place,
            env={**os.environ, **given},
            stdout=PIPE,
            stderr=PIPE,
        )
        said, warned = await child.communicate()
        return said.decode().strip(), warned.decode()


async def carried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(tmp_path, stack)


async def check(site: Site, part: str, place: str, audience: str) -> None:
    said, warned = await site.run(part, place)
    assert said == "hello", warned
    assert "Unclosed" not in warned
    assert set(site.tokens.asked) == {audience}


async def test_tables_are_opened_by_a_workload_identity(site: Site) -> None:
    await check(site, "tables", f"https://127.0.0.1:{site.azurite().table_port}", STORAGE)


async def test_blobs_are_opened_by_a_workload_identity(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(site.authority.file))
    server = site.azurite()
    await create_container(server.blob_connection, "work")
    await check(site, "blobs", f"https://127.0.0.1:{server.blob_port}", STORAGE)


async def test_app_configuration_is_opened_by_a_workload_identity(site: Site) -> None:
    async def answer(request: web.Request) -> web.Response:
        if audience_of(request.headers["Authorization"]) != CONFIGURATION:
            return web.Response(status=401)
        entry = {"key": "lucius/sentinel", "value": "hello", "etag": "1", "label": None}
        return web.json_response({"items": [entry]})

    place = await site.served("GET", "/kv", answer)
    await check(site, "configuration", f"https://{place}", CONFIGURATION)


async def test_service_bus_is_opened_and_provisioned_by_a_workload_identity(site: Site) -> None:
    async with StandIn(Broker(Bearers())) as stand_in:
        place = await site.encrypted(stand_in.port)
        await check(site, "bus", place, BUS)
