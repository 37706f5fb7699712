"""The process itself: alive, ready, measured."""

from typing import Final

from fastapi import APIRouter, Depends
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lucius.contract.models.base import UnreadyView
from lucius.contract.models.services import HealthView, ReadinessView
from lucius.core.errors import LuciusError
from lucius.http.context import ApiContext, Role
from lucius.http.problems import Problem, problem_response, problems
from lucius.http.readiness import OK, Readiness
from lucius.http.routing import (
    JSON,
    SYSTEM,
    Access,
    ApiRoute,
    Context,
    is_operator,
    json_response,
    needs,
)

BAD_CONFIG: Final = "the newest change is not valid and not in force; `lucius why` says the fault"
UNREADABLE: Final = "{} stored jobs cannot be read; `lucius verify` names them, and so does the log"
METRICS: Final = Access(Role.MONITOR, (Role.READ,), every_tenant=True)
_ALIVE: Final = json_response({"status": "ok"}).body
router = APIRouter(route_class=ApiRoute, tags=[SYSTEM])


@router.get(
    "/healthz",
    summary="The process is alive",
    dependencies=[needs(None, monitor=True)],
    response_model=HealthView,
    response_description="It is",
)
async def healthz() -> Response:
    return Response(_ALIVE, media_type=JSON)


@router.get(
    "/readyz",
    summary="The process and its dependencies are ready for work",
    description="Why a dependency is down is said to operators (roles `operate` and `admin`); others"
    " see which one.",
    dependencies=[needs(None, monitor=True)],
    response_model=ReadinessView,
    response_description="They are",
    responses=problems("NOT_READY", model=UnreadyView),
)
async def readyz(context: Context, request: Request) -> Response:
    """Every dependency is asked at once; the answer names each that is down."""
    readiness: Readiness = request.app.state.readiness
    said, full = await readiness.ask(), await _may_know(context, request)
    checks = {name: each.text if full else each.word for name, each in said.items()}
    warnings = await warnings_of(context)
    down = [name for name, word in checks.items() if word != OK]
    if not down:
        return json_response({"status": "ready", "checks": checks, "warnings": warnings})
    detail = "; ".join(f"{name}: {checks[name]}" for name in down)
    return problem_response(Problem("NOT_READY", detail), checks=checks, warnings=warnings)


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


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    description="Metrics name tenants, so the caller must be bound to none.",
    dependencies=[Depends(METRICS)],
    response_class=PlainTextResponse,
    response_description="Text in Prometheus' format",
)
async def metrics(context: Context, request: Request) -> Response:
    """Also during an outage: a scrape that fails then would hide it."""
    if context.refresh is not None:
        readiness: Readiness = request.app.state.readiness
        await context.refresh(await readiness.up())
    content = generate_latest(context.registry or CollectorRegistry())
    return Response(content, headers={"content-type": CONTENT_TYPE_LATEST})
