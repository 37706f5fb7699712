"""Services: who works for them and how fast; and pausing one whose dependency is down."""

from typing import Annotated, Any

from fastapi import APIRouter, Body
from starlette.responses import Response

from lucius.api.context import ApiContext, Role
from lucius.api.declared import problems
from lucius.api.explain import instant
from lucius.api.orders import reason_in
from lucius.api.parameters import ServiceInPath
from lucius.api.problems import Problem
from lucius.api.routing import ApiRoute, Context, KnownCaller, json_response, needs
from lucius.contract.models.base import JsonObject, MayMiss
from lucius.contract.models.control import OrderBody
from lucius.contract.models.services import ServiceOrderView, ServicesView
from lucius.core.effects import Outcome
from lucius.ports.services import KnownService, ServiceBook

router = APIRouter(route_class=ApiRoute, tags=["services"])


def _book(context: ApiContext) -> ServiceBook:
    if context.services is None:
        raise Problem("NOT_SUPPORTED")
    return context.services


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
    views = await _book(context).services()
    whole = caller.tenants is None
    return json_response({"services": [service_view(view, whole=whole) for view in views]})


def service_view(view: KnownService, *, whole: bool) -> JsonObject:
    """`whole`: with what belongs to all tenants together."""
    return {
        "service": view.service,
        "step_types": list(view.step_types),
        "subscribed": view.subscribed,
        "paused": _pause(view, whole=whole),
        "first_seen": instant(view.first_seen) if view.first_seen is not None else None,
        "last_seen": instant(view.last_seen) if view.last_seen is not None else None,
        "refused_at": instant(view.refused_at) if view.refused and view.refused_at else None,
        "waiting": view.waiting if whole else None,
        "sent": view.sent if whole else None,
        "running": view.running if whole else None,
        "oldest_sent_at": instant(view.oldest_sent) if whole and view.oldest_sent else None,
        "rate_per_minute": round(view.rate, 2) if whole else None,
        "failure_rate": round(view.failure_rate, 4) if whole else None,
        "workers": _workers(view) if whole else [],
    }


def _pause(view: KnownService, *, whole: bool) -> JsonObject | None:
    if view.paused_at is None:
        return None
    said = (view.paused_by, view.paused_reason) if whole else (None, None)
    return {"at": instant(view.paused_at), "by": said[0], "reason": said[1]}


def _workers(view: KnownService) -> list[JsonObject]:
    return [
        {
            "worker_id": worker.worker_id,
            "last_seen": instant(worker.last_seen),
            "running": worker.running,
            "slots": worker.slots,
            "version": worker.version,
        }
        for worker in view.workers
    ]


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
    context: Context,
    caller: KnownCaller,
    service: ServiceInPath,
    body: Annotated[MayMiss[OrderBody], Body()] = None,
) -> Response:
    return _ordered(service, await _book(context).pause(service, caller.known_as, reason_in(body)))


@router.post(
    "/v1/services/{service}:resume",
    **_declared("Resume a service", "What was held back goes out."),
)
async def resume_service(
    context: Context,
    service: ServiceInPath,
    body: Annotated[MayMiss[OrderBody], Body()] = None,
) -> Response:
    return _ordered(service, await _book(context).resume(service))


def _ordered(service: str, done: bool) -> Response:
    outcome = Outcome.APPLIED if done else Outcome.ALREADY
    return json_response({"service": service, "outcome": outcome.value})
