"""One job: why it is where it is, where its time went, its attempts and events, and its orders."""

from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.context import ApiContext, Caller
from lucius.api.parameters import MAX_SEQ, digits
from lucius.api.problems import parameter_problem
from lucius.api.requests import parameter, visible_job
from lucius.api.routing import Context, KnownCaller
from lucius.api.views import event_view, job_view
from lucius.console.live import looks_at, streamed
from lucius.console.orders import BULK_VERBS, JOB_ORDERS, base_of, just_given
from lucius.console.site import HEADERS, Pages, Site
from lucius.console.timeline import timeline
from lucius.core.effects import Event
from lucius.core.job import Job
from lucius.ports.engine import Engine

EVENTS: Final = 100
"""Events on a page."""
SCANNED: Final = 10_000
"""Events that one page with a filter looks at, at most."""
_PORTION: Final = 500


async def _asked(q: str = "", before: str = "", done: str = "") -> None:
    """Only events that contain this, or are before this `seq`; and the order that was just given."""


class OneJob:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def job(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        return await self._site.pulse.page(self._job(context, request, caller))

    async def _job(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        job = await visible_job(context, request.path_params["jobId"], caller)
        path = {"jobId": job.job_id}
        why = await self._site.api.ask_if_may(request, caller, "why_job", path)
        events = await self._events(context, request, job)
        return self._site.page(
            request,
            caller,
            "job.html",
            job=job_view(job),
            why=why,
            timeline=timeline(job, self._site.now()),
            orders=self._orders(request, caller, job),
            done=just_given(request, BULK_VERBS),
            seq=job.seq,
            traced=(job.plan.traceparent or "").split("-")[1:2],
            **events,
        )

    async def _events(self, context: ApiContext, request: Request, job: Job) -> dict[str, Any]:
        before = _before(request, job.seq + 1)
        wanted = request.query_params.get("q", "").strip()
        found, reached = await newest(context.engine, job, before, wanted)
        return {
            "events": [event_view(job.job_id, event) for event in found],
            "older": reached if reached > 1 else None,
            "newest": before > job.seq,
            "wanted": wanted,
        }

    def _orders(self, request: Request, caller: Caller, job: Job) -> list[dict[str, Any]]:
        """Those that the caller may give and the job could take."""
        base, signs_in = base_of(self._site, request), self._site.signs_in
        return [
            {
                "order": order,
                "shell": order.shell(base, job.job_id),
                "curl": order.curl(base, job.job_id, signs_in=signs_in),
                "reason": self._site.api.takes(order.asks, "reason"),
            }
            for order in JOB_ORDERS
            if self._site.api.may(caller, order.asks) and order.suits(job)
        ]

    async def job_live(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        """204 tells a browser that there is nothing more to come back for."""
        job, pulse = (
            await visible_job(context, request.path_params["jobId"], caller),
            self._site.pulse,
        )
        if job.terminal:
            return Response(status_code=204, headers=dict(HEADERS))
        return streamed(
            context, request, caller, lambda stands: looks_at(pulse, context, job, stands)
        )

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/jobs/{jobId}", self.job, takes=_asked)
        pages.add("GET", "/jobs/{jobId}/live", self.job_live)


def _before(request: Request, otherwise: int) -> int:
    text = request.query_params.get("before")
    if text is None:
        return otherwise
    before = parameter("before", text, digits)
    if not 1 <= before <= MAX_SEQ:
        raise parameter_problem("before", f"must be between 1 and {MAX_SEQ}")
    return before


async def newest(engine: Engine, job: Job, before: int, wanted: str) -> tuple[Sequence[Event], int]:
    """The last events before that one, the newest first, and the `seq` of where to go on.

    With a filter, so many are looked at as there are on a page that shows them all, and no more than
    a bounded number.
    """
    found: list[Event] = []
    top, scanned = min(before, job.seq + 1), 0
    portion = _PORTION if wanted else EVENTS
    while top > 1 and len(found) < EVENTS and scanned < SCANNED:
        after = max(0, top - 1 - portion)
        events = await engine.events(job.job_id, after, top - 1 - after)
        scanned += portion
        for event in reversed(events):
            if event.seq < top and (not wanted or _contains(event, wanted)):
                found.append(event)
                if len(found) == EVENTS:
                    return found, event.seq
        top = after + 1
    return found, top


def _contains(event: Event, wanted: str) -> bool:
    texts = (event.type, event.step_id or "", event.lease_id or "", *event.moves, str(event.data))
    return any(wanted.lower() in text.lower() for text in texts)
