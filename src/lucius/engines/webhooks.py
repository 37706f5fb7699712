"""Completion webhooks: signed as Standard Webhooks, and never aimed at an address inside the house.

The name is resolved here and every address it has must be public; the connection then goes to an
address that was checked, so that a second look-up cannot answer differently. Redirects are not
followed.
"""

import asyncio
import base64
import hmac
import ipaddress
import logging
import socket
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from fnmatch import fnmatch
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore
import httpx
import orjson

from lucius.core.errors import LuciusError
from lucius.core.job import Job, phase_of
from lucius.core.states import job_status

log = logging.getLogger("lucius.webhooks")

TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)
SECRET_PREFIX: Final = "whsec_"
SocketOptions = Iterable[
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
]


class WebhookRefusedError(LuciusError):
    """The address may not be called."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects only to public addresses, and to the very address that it has checked."""

    def __init__(self, inner: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        address = (await public_addresses(host, port))[0]
        return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise WebhookRefusedError("a webhook is never a local socket")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def public_addresses(host: str, port: int) -> list[str]:
    """Every address of the host; refused if any of them is not public."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise WebhookRefusedError(f"{host} cannot be resolved: {error}") from error
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(is_public(address) for address in addresses):
        raise WebhookRefusedError(f"{host} has an address that is not public")
    return addresses


def is_public(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo or (None, None))[1]
        if inner is not None:
            return is_public(str(inner))
        if parsed in NAT64:
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class Webhooks:
    """Tells a client how its job ended. `notify` answers whether the client has taken it."""

    def __init__(
        self,
        secret: str,
        *,
        hosts: Collection[str] = (),
        now: Callable[[], datetime],
        transport: httpx.AsyncBaseTransport | None = None,
        schemes: Collection[str] = ("https",),
    ) -> None:
        self._key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
        self._hosts = tuple(hosts)
        self._now = now
        self._schemes = schemes
        self._client = httpx.AsyncClient(
            transport=transport or guarded_transport(), timeout=TIMEOUT, follow_redirects=False
        )

    async def notify(self, job: Job, owed_id: str, url: str) -> bool:
        self._check(url)
        body = orjson.dumps(ending(job))
        headers = self._headers(f"{job.job_id}:{owed_id}", body)
        try:
            answer = await self._client.post(url, content=body, headers=headers)
        except (httpx.HTTPError, httpcore.NetworkError, httpcore.TimeoutException) as error:
            log.info("the webhook of job %s did not answer: %s", job.job_id, error)
            return False
        return answer.is_success

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in self._schemes or not host or parts.username or parts.password:
            raise WebhookRefusedError(f"{url} is not a webhook address")
        if self._hosts and not any(fnmatch(host, allowed) for allowed in self._hosts):
            raise WebhookRefusedError(f"{host} is not an allowed webhook host")

    def _headers(self, message_id: str, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._now().timestamp()))
        return {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": sign(self._key, message_id, timestamp, body),
        }

    async def close(self) -> None:
        await self._client.aclose()


def guarded_transport() -> httpx.AsyncHTTPTransport:
    transport = httpx.AsyncHTTPTransport(retries=0)
    transport._pool = httpcore.AsyncConnectionPool(
        ssl_context=httpx.create_ssl_context(), network_backend=GuardedBackend()
    )
    return transport


def sign(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, sha256).digest()).decode()


def ending(job: Job) -> dict[str, Any]:
    """How a job ended, for its client."""
    return {
        "type": f"job.{job.state.value.lower()}",
        "timestamp": job.updated_at.isoformat().replace("+00:00", "Z"),
        "data": {
            "jobId": job.job_id,
            "tenant_id": job.tenant_id,
            "request_type": job.plan.request_type,
            "state": job.state.value,
            "status": job_status(job.state),
            "phase": phase_of(job).value,
            "final_output": job.final_output,
            "error_code": job.fault.code if job.fault else None,
            "error_message": job.fault.message if job.fault else None,
            "correlation_id": job.plan.correlation_id,
        },
    }
