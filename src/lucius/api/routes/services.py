"""Services: who works for them and how fast; and pausing one whose dependency is down."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.body import optional_object
from lucius.api.context import ApiContext, Role
from lucius.api.explain import instant
from lucius.api.openapi import path_parameter
from lucius.api.operation import Answer, Handler, Operation
from lucius.api.orders import REASON, reason_in
from lucius.api.problems import Problem
from lucius.api.routing import Context, KnownCaller, json_response
from lucius.contract.shapes import (
    PauseShape,
    ServiceOrderShape,
    ServiceShape,
    ServicesShape,
    WorkerShape,
)
from lucius.core.effects import Outcome
from lucius.ports.services import KnownService, ServiceBook

_SERVICE: Final = path_parameter("service", "The service's name, as in the protocols")
_BODY: Final[dict[str, Any]] = {"type": "object", "properties": REASON}


def _book(context: ApiContext) -> ServiceBook:
    if context.services is None:
        raise Problem("NOT_SUPPORTED")
    return context.services


async def list_services(context: Context, request: Request, caller: KnownCaller) -> Response:
    views = await _book(context).services()
    whole = caller.tenants is None
    answer: ServicesShape = {"services": [service_view(view, whole=whole) for view in views]}
    return json_response(answer)


def service_view(view: KnownService, *, whole: bool) -> ServiceShape:
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


def _pause(view: KnownService, *, whole: bool) -> PauseShape | None:
    if view.paused_at is None:
        return None
    said = (view.paused_by, view.paused_reason) if whole else (None, None)
    return {"at": instant(view.paused_at), "by": said[0], "reason": said[1]}


def _workers(view: KnownService) -> list[WorkerShape]:
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


async def pause_service(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    service: str = request.path_params["service"]
    done = await _book(context).pause(service, caller.known_as, reason_in(body))
    return _ordered(service, done)


async def resume_service(context: Context, request: Request, caller: KnownCaller) -> Response:
    body = await optional_object(request, context.options.max_body_bytes)
    reason_in(body)
    service: str = request.path_params["service"]
    return _ordered(service, await _book(context).resume(service))


def _ordered(service: str, done: bool) -> Response:
    outcome = Outcome.APPLIED if done else Outcome.ALREADY
    answer: ServiceOrderShape = {"service": service, "outcome": outcome.value}
    return json_response(answer)


def _operation(verb: str, handler: Handler, summary: str, description: str) -> Operation:
    return Operation(
        "POST",
        f"/v1/services/{{service}}:{verb}",
        handler,
        summary,
        "services",
        Role.OPERATE,
        {200: Answer("`outcome` is `applied`, or `already` if that held", ServiceOrderShape)},
        parameters=(_SERVICE,),
        body=_BODY,
        body_required=False,
        description=description,
        every_tenant=True,
    )


OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/services",
        list_services,
        "Services with their workers, what waits and runs, and how fast",
        "services",
        Role.READ,
        {200: Answer("The services by name", ServicesShape)},
        description="A worker is known by its pulls, ACKs, heartbeats and results. `subscribed` is false"
        " while directives of the service are published that no subscription takes.",
    ),
    _operation(
        "pause",
        pause_service,
        "Pause a service: nothing is released to it",
        "Until it is resumed, also over a restart. What it has already may go on, and none of its leases"
        " runs out.",
    ),
    _operation("resume", resume_service, "Resume a service", "What was held back goes out."),
)
