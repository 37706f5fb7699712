"""The process itself: alive, ready, measured."""

import asyncio
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.codes import CODES
from lucius.api.context import ApiContext, Caller, HealthCheck, Role
from lucius.api.operation import Answer, Operation, json_response
from lucius.api.problems import problem_document
from lucius.api.shapes import HealthShape, ReadinessShape

BAD_CONFIG: Final = "the newest change is not valid and not in force; the log says why"
UNREADABLE: Final = "{} stored jobs cannot be read; `lucius verify` names them, and so does the log"
_ALIVE: Final = json_response({"status": "ok"}).body


async def healthz(context: ApiContext, request: Request, caller: Caller) -> Response:
    return Response(_ALIVE, media_type="application/json")


async def readyz(context: ApiContext, request: Request, caller: Caller) -> Response:
    """Every dependency is asked at once; the answer names each that is down."""
    checks = await _checked(context)
    down = [name for name, word in checks.items() if word != "ok"]
    if not down:
        answer: ReadinessShape = {
            "status": "ready",
            "checks": checks,
            "warnings": await _warnings(context),
        }
        return json_response(answer)
    detail = "; ".join(f"{name}: {checks[name]}" for name in down)
    document = {**problem_document(CODES["NOT_READY"], detail), "checks": checks}
    document["warnings"] = await _warnings(context)
    response = json_response(document, 503, {"retry-after": "1"})
    response.headers["content-type"] = "application/problem+json"
    return response


async def _warnings(context: ApiContext) -> dict[str, str]:
    """Everyone may ask, so this says only that something is wrong; the log says what."""
    warnings = {"configuration": BAD_CONFIG} if context.config.fault() is not None else {}
    if unreadable := await context.ledger.unreadable():
        warnings["ledger"] = UNREADABLE.format(unreadable)
    return {**warnings, **context.warnings()}


async def _checked(context: ApiContext) -> dict[str, str]:
    """What each dependency says: `ok`, or why not."""
    names = list(context.checks)
    limit = context.options.check_seconds
    said = await asyncio.gather(*(_asked(context.checks[name], limit) for name in names))
    return dict(zip(names, said, strict=True))


async def _asked(check: HealthCheck, limit: float) -> str:
    try:
        async with asyncio.timeout(limit):
            await check()
    except TimeoutError:
        return f"no answer within {limit:g} s"
    except Exception as error:
        return str(error) or type(error).__name__
    return "ok"


async def metrics(context: ApiContext, request: Request, caller: Caller) -> Response:
    """Also during an outage: a scrape that fails then would hide it."""
    if context.refresh is not None:
        checks = await _checked(context)
        await context.refresh({name: word == "ok" for name, word in checks.items()})
    content = generate_latest(context.registry or CollectorRegistry())
    return Response(content, headers={"content-type": CONTENT_TYPE_LATEST})


OPERATIONS: Final = (
    Operation(
        "GET",
        "/healthz",
        healthz,
        "The process is alive",
        "system",
        None,
        {200: Answer("It is", HealthShape)},
    ),
    Operation(
        "GET",
        "/readyz",
        readyz,
        "The process and its dependencies are ready for work",
        "system",
        None,
        {200: Answer("They are", ReadinessShape)},
        codes=("NOT_READY",),
    ),
    Operation(
        "GET",
        "/metrics",
        metrics,
        "Metrics for Prometheus",
        "system",
        Role.READ,
        {200: Answer("Text in Prometheus' format", media="text/plain")},
        every_tenant=True,
        description="Metrics name tenants, so the caller must be bound to none.",
    ),
)
