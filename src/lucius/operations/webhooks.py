"""Completion webhooks: signed as Standard Webhooks, and never aimed at an address inside the house.

The name is resolved here and every address it has must be public; the connection then goes to an
address that was checked, so that a second look-up cannot answer differently. Redirects are not
followed, and nothing of an answer but its status is read. Each tenant has a secret of its own, or
one tenant could sign what another believes.
"""

import asyncio
import base64
import hmac
import logging
from binascii import Error as Base64Error
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, TypeVar

import httpx
import orjson

from lucius.core.errors import EffectRefusedError, LuciusError
from lucius.core.job import Job, job_status, phase_of
from lucius.core.references import webhook_fault
from lucius.system.instruments import Count, Instruments
from lucius.system.outside import AT_ONCE, GuardedBackend, guarded_transport, read_alike

# How many webhooks are under way at once, so that no host and no tenant holds up the others.
#
# A receiver that does not answer keeps a slot until its delivery times out. A host of one tenant gets
# only a few of them, a tenant only its part, and a slot that falls free goes to whoever holds fewest.

PER_TENANT: Final = 32
PER_HOST: Final = 16
"""Of one tenant: two tenants with the same host do not share its slots."""

T = TypeVar("T")
Place = tuple[str, str]
"""Tenant and host."""


class Slots:
    def __init__(
        self, at_once: int = AT_ONCE, tenant: int = PER_TENANT, host: int = PER_HOST
    ) -> None:
        self._free = at_once
        self._tenant = tenant
        self._host = host
        self._by_tenant: Counter[str] = Counter()
        self._by_place: Counter[Place] = Counter()
        self._waiting: dict[Place, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def one(self, tenant_id: str, host: str) -> AsyncIterator[None]:
        place = (tenant_id, host)
        await self._taken(place)
        try:
            yield
        finally:
            self._give_back(place)

    async def _taken(self, place: Place) -> None:
        if self._has_capacity(place):
            self._take(place)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given the slot, and does not want it
                self._give_back(place)
            raise

    def _has_capacity(self, place: Place) -> bool:
        tenant_has_capacity = self._by_tenant[place[0]] < self._tenant
        return self._free > 0 and tenant_has_capacity and self._by_place[place] < self._host

    def _take(self, place: Place) -> None:
        self._free -= 1
        self._by_tenant[place[0]] += 1
        self._by_place[place] += 1

    def _give_back(self, place: Place) -> None:
        self._free += 1
        _drop(self._by_tenant, place[0])
        _drop(self._by_place, place)
        self._pass_on()

    def _pass_on(self) -> None:
        """To whoever waits and may have it: the tenant that holds fewest, then its host that does."""
        while ready := [place for place in self._waiting if self._has_capacity(place)]:
            place = min(ready, key=lambda each: (self._by_tenant[each[0]], self._by_place[each]))
            turn = self._next(place)
            if turn is not None:
                self._take(place)
                turn.set_result(None)

    def _next(self, place: Place) -> "asyncio.Future[None] | None":
        """The first that still waits there."""
        line = self._waiting[place]
        turn = line.popleft()
        if not line:
            del self._waiting[place]
        return None if turn.done() else turn


def _drop(held: Counter[T], name: T) -> None:
    """One less; what is not held is forgotten."""
    held[name] -= 1
    if not held[name]:
        del held[name]


log = logging.getLogger("lucius.webhooks")

TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0, pool=None)
LONGEST: Final = timedelta(seconds=15)
"""For the whole delivery, however slowly a receiver answers."""
GONE: Final = 410
SECRET_PREFIX: Final = "whsec_"
SECRET_BYTES: Final = range(24, 65)


class WebhookRefusedError(EffectRefusedError):
    """The address may not be called, or wants no more calls."""


class WebhookFailedError(LuciusError):
    """The client was not told. It is tried again."""


class WebhookSecretError(LuciusError):
    """The secret is not one of Standard Webhooks."""


class WebhookInstruments(Instruments):
    """Counts of this process."""

    def __init__(self) -> None:
        self.tries = Count(
            "lucius_webhook_tries_total",
            "Deliveries of webhooks: delivered, failed and tried again, or refused for good",
            ("outcome",),
        )
        for outcome in ("delivered", "failed", "refused"):
            self.tries.expect(outcome)


class Webhooks:
    """Tells a client how its job ended.

    `notify` answers whether the client has taken it; False: another delivery of it is under way.
    WebhookFailedError says why it has not.
    """

    def __init__(
        self,
        secret: str,
        *,
        hosts: Collection[str] = (),
        now: Callable[[], datetime],
        transport: httpx.AsyncBaseTransport | None = None,
        schemes: Collection[str] = ("https",),
    ) -> None:
        self._keys = secret_keys(secret)
        self._hosts = tuple(hosts)
        self._now = now
        self._schemes = tuple(schemes)
        self._slots = Slots()
        self._under_way: set[str] = set()
        self.instruments = WebhookInstruments()
        self._client = httpx.AsyncClient(
            transport=transport or guarded_transport(GuardedBackend(named=hosts)),
            timeout=TIMEOUT,
            follow_redirects=False,
            trust_env=False,
        )

    async def notify(self, job: Job, owed_id: str, url: str) -> bool:
        """One delivery at a time: a retry that comes while the last one still waits is none."""
        try:
            told = await self._told(job, owed_id, url)
        except WebhookFailedError:
            self.instruments.tries.add("failed")
            raise
        except EffectRefusedError:
            self.instruments.tries.add("refused")
            raise
        if told:
            self.instruments.tries.add("delivered")
        return told

    async def _told(self, job: Job, owed_id: str, url: str) -> bool:
        target, message_id = self._checked(url), f"{job.job_id}:{owed_id}"
        if message_id in self._under_way:
            return False
        body = orjson.dumps(ending(job))
        headers = self._headers(job.tenant_id, message_id, body)
        self._under_way.add(message_id)
        try:
            slot = self._slots.one(job.tenant_id, target.host)
            async with slot, asyncio.timeout(LONGEST.total_seconds()):
                status = await self._post(target, body, headers)
        except (httpx.HTTPError, OSError) as error:
            raise WebhookFailedError(_said(error)) from error
        finally:
            self._under_way.discard(message_id)
        if status == GONE:
            raise WebhookRefusedError(f"{target.host} answers 410: it wants no more calls")
        if not 200 <= status < 300:
            raise WebhookFailedError(f"it answered {status}")
        return True

    async def _post(self, url: httpx.URL, body: bytes, headers: dict[str, str]) -> int:
        """The status alone: leaving the stream closes the connection, whatever else would come."""
        async with self._client.stream("POST", url, content=body, headers=headers) as answer:
            return answer.status_code

    def _checked(self, url: str) -> httpx.URL:
        """Judged as at ingress, whose policy may have changed since, and as the client reads it."""
        fault = webhook_fault(url, self._schemes, self._hosts)
        if fault is not None:
            raise WebhookRefusedError(f"the webhook's address {fault}")
        parsed = read_alike(url)
        if parsed is None:
            raise WebhookRefusedError("the webhook's address can be read in two ways")
        return parsed

    def _headers(self, tenant_id: str, message_id: str, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._now().timestamp()))
        signatures = [
            sign(tenant_key(key, tenant_id), message_id, timestamp, body) for key in self._keys
        ]
        return {
            "content-type": "application/json",
            "user-agent": "lucius-webhooks",
            "webhook-id": message_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(signatures),
        }

    async def close(self) -> None:
        await self._client.aclose()


def _said(error: Exception) -> str:
    """Plainly, without the address, whose path may be a secret."""
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return f"no answer within {LONGEST.total_seconds():g} s"
    text = str(error) or type(error).__name__
    return f"it cannot be reached: {text}"


def sign(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, sha256)).decode()


def secret_keys(secret: str) -> Sequence[bytes]:
    """One or more secrets with commas, so that they can be rotated: every one of them signs."""
    keys = []
    for text in secret.split(","):
        try:
            key = base64.b64decode(text.strip().removeprefix(SECRET_PREFIX), validate=True)
        except (Base64Error, ValueError):
            key = b""
        if len(key) not in SECRET_BYTES:
            least, most = SECRET_BYTES[0], SECRET_BYTES[-1]
            raise WebhookSecretError(
                f"LUCIUS_WEBHOOK_SECRET: each secret must be {SECRET_PREFIX}, then {least} to {most} bytes"
                " in base64"
            )
        keys.append(key)
    return keys


def tenant_key(key: bytes, tenant_id: str) -> bytes:
    return hmac.digest(key, b"lucius-webhook:" + tenant_id.encode(), sha256)


def tenant_secrets(secret: str, tenant_id: str) -> list[str]:
    """What a tenant's receivers verify with, in the form that Standard Webhooks libraries take."""
    return [
        SECRET_PREFIX + base64.b64encode(tenant_key(key, tenant_id)).decode()
        for key in secret_keys(secret)
    ]


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
