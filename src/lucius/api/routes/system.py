"""The process itself: alive, ready, measured."""

from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Role
from lucius.api.operation import Answer, Operation
from lucius.api.problems import problem_document
from lucius.api.readiness import OK, Readiness
from lucius.api.routing import Context, KnownCaller, is_operator, json_response
from lucius.contract.codes import CODES
from lucius.contract.shapes import HealthShape, ReadinessShape, UnreadyShape
from lucius.core.errors import LuciusError

BAD_CONFIG: Final = "the newest change is not valid and not in force; the log says why"
UNREADABLE: Final = "{} stored jobs cannot be read; `lucius verify` names them, and so does the log"
_ALIVE: Final = json_response({"status": "ok"}).body


async def healthz(context: Context, request: Request, caller: KnownCaller) -> Response:
    return Response(_ALIVE, media_type="application/json")


async def readyz(context: Context, request: Request, caller: KnownCaller) -> Response:
    """Every dependency is asked at once; the answer names each that is down."""
    readiness: Readiness = request.app.state.readiness
    said, full = await readiness.ask(), await _may_know(context, request)
    checks = {name: each.text if full else each.word for name, each in said.items()}
    down = [name for name, word in checks.items() if word != OK]
    if not down:
        answer: ReadinessShape = {
            "status": "ready",
            "checks": checks,
            "warnings": await warnings_of(context),
        }
        return json_response(answer)
    detail = "; ".join(f"{name}: {checks[name]}" for name in down)
    document = {**problem_document(CODES["NOT_READY"], detail), "checks": checks}
    document["warnings"] = await warnings_of(context)
    response = json_response(document, 503, {"retry-after": "1"})
    response.headers["content-type"] = "application/problem+json"
    return response


async def warnings_of(context: ApiContext) -> dict[str, str]:
    """Everyone may ask, so this says only that something is wrong; the log says what."""
    warnings = {"configuration": BAD_CONFIG} if context.config.fault() is not None else {}
    if unreadable := await context.engine.unreadable():
        warnings["ledger"] = UNREADABLE.format(unreadable)
    return {**warnings, **context.warnings()}


async def _may_know(context: ApiContext, request: Request) -> bool:
    """Anyone is answered, and operators in full."""
    if context.authenticate is None:
        return True
    try:
        return is_operator(await context.authenticate(request))
    except LuciusError:
        return False


async def metrics(context: Context, request: Request, caller: KnownCaller) -> Response:
    """Also during an outage: a scrape that fails then would hide it."""
    if context.refresh is not None:
        readiness: Readiness = request.app.state.readiness
        said = await readiness.ask()
        await context.refresh({name: each.word == OK for name, each in said.items()})
    content = generate_latest(context.registry or CollectorRegistry())
    return Response(content, headers={"content-type": CONTENT_TYPE_LATEST})


METRICS: Final = Operation(
    "GET",
    "/metrics",
    metrics,
    "Metrics for Prometheus",
    "system",
    Role.MONITOR,
    {200: Answer("Text in Prometheus' format", media="text/plain")},
    every_tenant=True,
    also=(Role.READ,),
    description="Metrics name tenants, so the caller must be bound to none.",
)
OPERATIONS: Final = (
    Operation(
        "GET",
        "/healthz",
        healthz,
        "The process is alive",
        "system",
        None,
        {200: Answer("It is", HealthShape)},
        monitor=True,
    ),
    Operation(
        "GET",
        "/readyz",
        readyz,
        "The process and its dependencies are ready for work",
        "system",
        None,
        {200: Answer("They are", ReadinessShape)},
        problem=UnreadyShape,
        monitor=True,
        description="Why a dependency is down is said to operators (roles `operate` and `admin`); others"
        " see which one.",
    ),
    METRICS,
)
