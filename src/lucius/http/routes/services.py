"""Services: who works for them and how fast; and pausing one whose dependency is down."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from lucius.contract.models.base import JsonObject
from lucius.contract.models.services import (
    DroppedWorkerView,
    DropWorkerBody,
    ServiceOrderView,
    ServicesView,
    ServiceView,
    WorkerView,
)
from lucius.core.effects import Outcome
from lucius.http.context import Role
from lucius.http.parameters import AnyOrder, ServiceInPath, reason_in
from lucius.http.problems import offered, problems
from lucius.http.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.http.views import picked
from lucius.ports.services import KnownService

_OF_ALL_TENANTS: Final = (
    *("waiting", "sent", "running", "oldest_sent_at", "rate_per_minute", "failure_rate"),
)
MOST_NAMED: Final = 100
router = APIRouter(route_class=ApiRoute, tags=["services"])


@router.get(
    "/v1/services",
    summary="Services with their workers, what waits and runs, and how fast",
    description="A worker is known by its pulls, ACKs, heartbeats and results. `subscribed` is false"
    " while directives of the service are published that no subscription takes.",
    dependencies=[needs(Role.READ)],
    response_model=ServicesView,
    response_description="The services by name",
    responses=problems("NOT_SUPPORTED"),
)
async def list_services(context: Context, caller: KnownCaller) -> Response:
    views = await offered(context.services).services()
    whole = caller.tenants is None
    return json_response({"services": [service_view(view, whole=whole) for view in views]})


def service_view(view: KnownService, *, whole: bool) -> JsonObject:
    """`whole`: with what belongs to all tenants together."""
    paused = {"at": view.paused_at, "by": view.paused_by, "reason": view.paused_reason}
    shown = picked(
        ServiceView,
        view,
        paused=paused if view.paused_at is not None else None,
        refused_at=view.refused_at if view.refused else None,
        oldest_sent_at=view.oldest_sent,
        rate_per_minute=round(view.rate, 2),
        failure_rate=round(view.failure_rate, 4),
        workers=[picked(WorkerView, worker) for worker in view.workers],
    )
    if not whole:
        shown |= dict.fromkeys(_OF_ALL_TENANTS) | {"workers": []}
        paused |= {"by": None, "reason": None}
    return shown


def _declared(summary: str, description: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": description,
        "dependencies": [needs(Role.OPERATE, every_tenant=True)],
        "response_model": ServiceOrderView,
        "response_description": "`outcome` is `applied`, or `already` if that held",
        "responses": problems("SERVICE_NOT_FOUND", "NOT_SUPPORTED"),
    }


@router.post(
    "/v1/services/{service}:pause",
    **_declared(
        "Pause a service: nothing is released to it",
        "Until it is resumed, also over a restart. What it has already may go on, and none of its leases"
        " runs out.",
    ),
)
async def pause_service(
    context: Context, caller: KnownCaller, service: ServiceInPath, body: AnyOrder = None
) -> Response:
    return _ordered(
        service, await offered(context.services).pause(service, caller.known_as, reason_in(body))
    )


@router.post(
    "/v1/services/{service}:resume",
    **_declared("Resume a service", "What was held back goes out."),
)
async def resume_service(
    context: Context, service: ServiceInPath, body: AnyOrder = None
) -> Response:
    return _ordered(service, await offered(context.services).resume(service))


@router.post(
    "/v1/workers:drop",
    summary="Take back what a worker that is gone has in hand",
    description="Its leases end, and its steps are tried again at once, twice without using up an attempt."
    " If it lives after all, what it says later is recorded and changes nothing.",
    dependencies=[needs(Role.OPERATE, every_tenant=True)],
    response_model=DroppedWorkerView,
    response_description="The jobs",
    responses=problems("WORKER_NOT_FOUND", "NOT_SUPPORTED", "ORCHESTRATION_UNAVAILABLE"),
)
async def drop_worker(context: Context, caller: KnownCaller, body: DropWorkerBody) -> Response:
    """Its jobs' events show who said so, and why."""
    given = (body.worker_id, caller.known_as, reason_in(body))
    jobs = await offered(context.services).drop(*given)
    return json_response(
        {"worker_id": body.worker_id, "dropped": len(jobs), "jobs": list(jobs[:MOST_NAMED])}
    )


def _ordered(service: str, done: bool) -> Response:
    outcome = Outcome.APPLIED if done else Outcome.ALREADY
    return json_response({"service": service, "outcome": outcome.value})
