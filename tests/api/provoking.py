"""One way to provoke each error code over HTTP. Each answers with the response that has the code."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from starlette.requests import Request

from lucius.adapters.buses.memory import MemoryBus
from lucius.core.errors import (
    BusUnavailableError,
    LedgerCorruptError,
    LedgerRowUnreadableError,
    LedgerUnavailableError,
)
from lucius.core.plan import TEMPORAL
from lucius.core.references import ReferencePolicy
from lucius.engine.admission.ingress import IngressPolicy
from lucius.engine.temporal.engine import TemporalEngine
from lucius.engine.temporal.invoker_client import RemoteInvoker
from lucius.http.access import KeyAccess
from lucius.http.app import create_app
from lucius.http.context import Caller, Role
from lucius.http.keys import KeyFile
from lucius.http.limits import HostCheck, RateLimit, WaitLimit
from lucius.http.owner import Owner, Refusing
from lucius.http.problems import Problem
from lucius.ports.bus import Subscription
from lucius.ports.config import TenantConfig
from lucius.ports.ledger import Limits
from tests.api.world import CATALOG, ENVELOPE, World, accepted, bearer, client_of, context_of
from tests.wiring import gateway_on

Answer = httpx.Response
Provoke = Callable[..., Awaitable[Answer]]
PROVOKED: dict[str, Provoke] = {}
SUBMIT = "/v1/orchestrate"
PULL = "/v1/services/ocr-service/directives:pull"


def provokes(code: str) -> Callable[[Provoke], Provoke]:
    def register(provoke: Provoke) -> Provoke:
        PROVOKED[code] = provoke
        return provoke

    return register


@asynccontextmanager
async def api(world: World | None = None, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(context_of(world or World(), **more)) as client:
        yield client


def asks(code: str, method: str, path: str, **request: Any) -> None:
    """The request alone provokes it."""

    async def provoke(**context: Any) -> Answer:
        async with api(**context) as client:
            return await client.request(method, path, **request)

    PROVOKED[code] = provoke


def submits(code: str, world: World | None = None, **changes: Any) -> None:
    async def provoke() -> Answer:
        async with api(world) as client:
            return await client.post(SUBMIT, json={**ENVELOPE, **changes})

    PROVOKED[code] = provoke


def on_job(code: str, *orders: str) -> None:
    """Orders for a job whose first step is at work; the last of them is refused."""

    async def provoke() -> Answer:
        world = World()
        async with api(world) as client:
            job_id = await accepted(client)
            reply = await world.out(job_id)
            await client.post("/v1/callbacks/ack", json=reply, headers=bearer(reply))
            for order in orders:
                answer = await client.post(order.format(job_id))
        return answer

    PROVOKED[code] = provoke


def replies(code: str, token: str | None = None, **changes: Any) -> None:
    """A reply to a directive that is out, changed so."""

    async def provoke() -> Answer:
        world = World()
        async with api(world) as client:
            reply = {**await world.out(await accepted(client)), **changes}
            headers = bearer(reply) if token is None else {"authorization": token}
            return await client.post("/v1/callbacks/ack", json=reply, headers=headers)

    PROVOKED[code] = provoke


def fails(code: str, error: Exception) -> None:
    """The ledger fails so."""

    async def provoke() -> Answer:
        world = World()
        world.ledger.failing = error
        async with api(world) as client:
            return await client.get("/v1/jobs/job_0")

    PROVOKED[code] = provoke


def called_by(caller: Caller | Problem) -> Any:
    async def authenticate(request: Request) -> Caller:
        if isinstance(caller, Problem):
            raise caller
        return caller

    return authenticate


# -- reading a request -----------------------------------------------------------------------

JSON = {"content-type": "application/json"}
asks("NOT_FOUND", "GET", "/nope")
asks("METHOD_NOT_ALLOWED", "DELETE", "/v1/jobs")
asks("UNKNOWN_PARAMETER", "GET", "/v1/jobs?tenant=a")
asks("INVALID_PARAMETER", "GET", "/v1/jobs?limit=many")
asks("INVALID_CURSOR", "GET", "/v1/jobs?cursor=made.up")
asks("INVALID_JSON", "POST", SUBMIT, content=b"{", headers=JSON)
asks("DUPLICATE_KEY", "POST", SUBMIT, content=b'{"a": 1, "a": 2}', headers=JSON)
asks("NESTING_TOO_DEEP", "POST", SUBMIT, content=b"[" * 65 + b"]" * 65, headers=JSON)
asks("INVALID_BODY", "POST", SUBMIT, json=[])
asks("BODY_TOO_LARGE", "POST", SUBMIT, content=b" " * (1024 * 1024 + 1), headers=JSON)
asks("UNSUPPORTED_MEDIA_TYPE", "POST", SUBMIT, content=b"{}", headers={"content-type": "text/xml"})
asks("CROSS_ORIGIN", "POST", SUBMIT, json={}, headers={"origin": "http://elsewhere.test"})
asks("JOB_NOT_FOUND", "GET", "/v1/jobs/job_9")
asks("NOT_SUPPORTED", "POST", PULL)
asks("CALLBACK_TOKEN_REQUIRED", "POST", "/v1/callbacks/ack", json={})

# -- the envelope ----------------------------------------------------------------------------

submits("INVALID_ENVELOPE", tenant_id="")
submits("UNSUPPORTED_SCHEMA_VERSION", schema_version="v2")
submits("UNKNOWN_REQUEST_TYPE", request_type="FAX")
submits("INVALID_PAYLOAD", payload={"steps": {"fax": {}}})
submits("PAYLOAD_HAS_CREDENTIALS", payload={"password": "geheim"})
submits("PAYLOAD_TOO_LARGE", payload={"text": "x" * 200_000})
submits("REFERENCE_INVALID", input_ref="in.pdf")
submits("REFERENCE_HAS_CREDENTIALS", input_ref="https://user:word@host.test/in.pdf")
submits("REFERENCE_NOT_ALLOWED", input_ref="ftp://host.test/in.pdf")
submits("DOC_ID_REQUIRED", mode="BURST")
_CLOSED = ReferencePolicy(protects=lambda path: path.startswith("/data"))
submits(
    "REFERENCE_PROTECTED",
    World(policy=IngressPolicy(references=_CLOSED)),
    input_ref="file:///data/keys.json",
)
_NO_BURST = {"tenant_a": TenantConfig(burst_allowed=False)}
submits("BURST_NOT_ALLOWED", World(replace(CATALOG, tenants=_NO_BURST)), mode="BURST", doc_id="d")
submits("TENANT_SATURATED", World(limits=Limits(tenant=0)))
submits("GLOBAL_SATURATED", World(limits=Limits(total=0)))
submits("LANE_SATURATED", World(limits=Limits(lane=0)))


@provokes("IDEMPOTENCY_KEY_REUSED")
async def reused_key() -> Answer:
    async with api() as client:
        await accepted(client, idempotency_key="k")
        body = {**ENVELOPE, "idempotency_key": "k", "payload": {"language": "de"}}
        return await client.post(SUBMIT, json=body)


@provokes("NOT_READY")
async def stopping() -> Answer:
    async with api(stopping=lambda: True) as client:
        return await client.post(SUBMIT, json=ENVELOPE)


# -- jobs ------------------------------------------------------------------------------------

on_job("JOB_CANCELLING", "/v1/jobs/{}:cancel", "/v1/jobs/{}:pause")
on_job("JOB_PAUSED", "/v1/jobs/{}:pause", "/v1/jobs/{}:retry")
on_job("NOT_REDRIVABLE", "/v1/jobs/{}:redrive")
on_job("NOT_IN_DLQ", "/v1/admin/dlq/{}:dismiss")
on_job("NOTHING_TO_SEND", "/v1/jobs/{}/webhooks:resend")


@provokes("WORKER_NOT_FOUND")
async def nobody_to_drop() -> Answer:
    async with api() as client:
        return await client.post("/v1/workers:drop", json={"worker_id": "nobody"})


@provokes("JOB_TERMINAL")
async def ended_job() -> Answer:
    async with api() as client:
        job_id = await accepted(client)
        await client.post(f"/v1/jobs/{job_id}:cancel")
        return await client.post(f"/v1/jobs/{job_id}:resume")


@provokes("ALREADY_REDRIVEN")
async def redriven_otherwise() -> Answer:
    async with api() as client:
        job_id = await accepted(client)
        await client.post(f"/v1/jobs/{job_id}:cancel")
        await client.post(f"/v1/jobs/{job_id}:redrive")
        return await client.post(f"/v1/jobs/{job_id}:redrive", json={"payload": {"a": 1}})


@provokes("STEP_NOT_FOUND")
async def unknown_step() -> Answer:
    async with api() as client:
        return await client.get(f"/v1/jobs/{await accepted(client)}/steps?step_id=fax")


asks("GROUP_NOT_FOUND", "GET", "/v1/failures/0123")
asks("PLAN_NOT_FOUND", "GET", "/v1/redrives/plan_0")
asks("NOTHING_TO_REDRIVE", "POST", "/v1/redrives", json={"filter": {"code": "BROKEN"}})


def plans(code: str, filters: Sequence[dict[str, Any]]) -> None:
    """Redrive plans for a job that failed; the last of them is refused."""

    async def provoke() -> Answer:
        world = World()
        async with api(world) as client:
            reply = await world.out(await accepted(client))
            failed = {**reply, "status": "FAILED_FINAL", "error_code": "BROKEN"}
            await client.post("/v1/callbacks/result", json=failed, headers=bearer(reply))
            for each in filters:
                answer = await client.post("/v1/redrives", json={"filter": each})
        return answer

    PROVOKED[code] = provoke


plans("PLAN_UNDER_WAY", [{"code": "BROKEN"}] * 2)
plans("TOO_MANY_PLANS", [{"code": ["BROKEN", f"OTHER_{number}"]} for number in range(21)])
asks("FILTER_TOO_WIDE", "POST", "/v1/redrives", json={"filter": {}})

# -- workers ---------------------------------------------------------------------------------

replies("INVALID_CALLBACK", type="RESULT")
replies("CALLBACK_TOKEN_INVALID", token="Bearer made.up")
replies("STALE_ATTEMPT", lease_id="another")
replies("UNKNOWN_STEP", stepId="fax")


class BrokenBus(MemoryBus):
    async def ensure(self, subscriptions: Sequence[Subscription]) -> None:
        raise BusUnavailableError("the broker does not answer")


class PlainBus(MemoryBus):
    by_tenant = False


def pulls(code: str, bus: MemoryBus, path: str = PULL, caller: Caller | None = None) -> None:
    async def provoke() -> Answer:
        world = World()
        authenticate = called_by(caller) if caller is not None else None
        gateway = gateway_on(bus, world.config)
        async with api(world, gateway=gateway, authenticate=authenticate) as client:
            return await client.post(path)

    PROVOKED[code] = provoke


BOUND = Caller("worker", frozenset(Role), frozenset({"tenant_a"}))
pulls("BUS_UNAVAILABLE", BrokenBus())
pulls("SERVICE_NOT_FOUND", MemoryBus(), PULL.replace("ocr-service", "fax"))
pulls("TENANT_WITHOUT_POOL", PlainBus(), caller=BOUND)


@provokes("ORCHESTRATION_UNAVAILABLE")
async def invoker_away() -> Answer:
    """The server creates jobs on Temporal, and nobody is there to move them."""
    world = World(policy=IngressPolicy(engine=TEMPORAL))
    engine = TemporalEngine(world.engine, RemoteInvoker(["http://127.0.0.1:1"], ""))
    async with client_of(replace(context_of(world), engine=engine)) as client:
        return await client.post(f"/v1/jobs/{await accepted(client)}:cancel")


# -- callers ---------------------------------------------------------------------------------


def calls(code: str, caller: Caller | Problem) -> None:
    async def provoke() -> Answer:
        async with api(authenticate=called_by(caller)) as client:
            return await client.post(SUBMIT, json={**ENVELOPE, "tenant_id": "tenant_b"})

    PROVOKED[code] = provoke


calls("UNAUTHENTICATED", Problem("UNAUTHENTICATED"))
calls("FORBIDDEN", Caller("nobody", frozenset()))
calls("TENANT_FORBIDDEN", BOUND)


@provokes("AUTHENTICATION_UNAVAILABLE")
async def unreadable_keys(folder: Path) -> Answer:
    (folder / "keys.json").write_text("no JSON")
    async with api(authenticate=KeyAccess(KeyFile(folder / "keys.json"))) as client:
        return await client.get("/v1/jobs", headers={"authorization": f"Bearer lk_{'0' * 56}"})


@provokes("RATE_LIMITED")
async def too_often() -> Answer:
    async with api(rate=RateLimit(1, clock=lambda: 0.0)) as client:
        await client.get("/v1/jobs")
        return await client.get("/v1/jobs")


@provokes("TOO_MANY_WAITING")
async def too_many_at_once() -> Answer:
    async with api(waits=WaitLimit(0)) as client:
        return await client.get(f"/v1/jobs/{await accepted(client)}?wait_seconds=1")


@provokes("MISDIRECTED_REQUEST")
async def another_host() -> Answer:
    async with api(hosts=HostCheck()) as client:
        return await client.get("/v1/jobs", headers={"host": "elsewhere.test"})


@provokes("OTHER_USER")
async def another_user() -> Answer:
    refusal = Owner(1000, lambda client, server: 1001).refusal(("::1", 1), ("::1", 2))
    assert refusal is not None
    app = Refusing(create_app(context_of(World())), refusal, lambda: None)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://lucius") as client:
        return await client.get("/v1/jobs")


# -- the server ------------------------------------------------------------------------------

fails("LEDGER_UNAVAILABLE", LedgerUnavailableError("the disk is full"))
fails("LEDGER_CORRUPT", LedgerCorruptError("a page is damaged"))
fails("LEDGER_ROW_UNREADABLE", LedgerRowUnreadableError("job_0", "why", tenant_id="tenant_a"))
fails("INTERNAL_ERROR", ZeroDivisionError("a defect"))
