"""The first page: what is wrong now, how much goes through, what waits where."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lucius.core.job import TERMINAL_JOB, JobState
from lucius.core.routing import LANES
from lucius.http.console.live import Pulse, looks, streamed
from lucius.http.console.site import Pages, Site
from lucius.http.context import Caller
from lucius.http.readiness import OK, Readiness
from lucius.http.routes.system import warnings_of
from lucius.http.routing import Context, KnownCaller, is_operator
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobQuery

LIVE: Final = tuple(state for state in JobState if state not in TERMINAL_JOB)
SPANS: Final = {"last 5 minutes": timedelta(minutes=5), "last hour": timedelta(hours=1)}
SAMPLE: Final = 100
"""Jobs that the latency is measured on: the last that succeeded."""
KEPT: Final = timedelta(seconds=2)
"""How long several who look see the same numbers."""
HEAT: Final = (0, 1, 5, 20, 100, 1000)
"""From how many waiting directives on a field of the heat map has which tone."""


class Shared:
    """One answer for all who ask the same within a moment: it is worked out once."""

    def __init__(self, pulse: Pulse, now: Callable[[], datetime], kept: timedelta = KEPT) -> None:
        self._pulse = pulse
        self._now = now
        self._kept = kept
        self._made: dict[Any, tuple[datetime, asyncio.Task[Any]]] = {}

    async def get(self, key: Any, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        now = self._now()
        self._made = {k: made for k, made in self._made.items() if now - made[0] < self._kept}
        if key not in self._made:
            self._made[key] = (now, asyncio.ensure_future(self._pulse.shared(make())))
        return await asyncio.shield(self._made[key][1])


class Now:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._shared = Shared(site.pulse, site.now)

    async def now(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        return await self._site.pulse.page(self._now(context, request, caller))

    async def _now(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        api = self._site.api
        numbers = await self._shared.get(
            ("numbers", caller.tenants),
            lambda: counted(context.engine, caller.tenants, self._site.now()),
        )
        backlog = None
        if api.may(caller, "get_backlog"):
            rows = await self._shared.get(
                "backlog", lambda: api.ask(request, caller, "get_backlog")
            )
            backlog = heat_map(rows["backlog"])
        readiness: Readiness = request.app.state.readiness
        said = await self._shared.get("readiness", readiness.ask)
        full = not self._site.signs_in or is_operator(caller)
        return self._site.page(
            request,
            caller,
            "now.html",
            numbers=numbers,
            backlog=backlog,
            checks={
                name: each.text if full else each.word
                for name, each in said.items()
                if each.word != OK
            },
            warnings=await warnings_of(context),
            findings=await self._findings(request, caller),
            services=await self._services(request, caller),
        )

    async def _findings(self, request: Request, caller: Caller) -> list[Any] | None:
        """What `lucius why` says of the whole system; None where this process cannot say."""
        ask = self._site.api.ask_if_may
        key = ("why", caller.tenants)
        found = await self._shared.get(key, lambda: ask(request, caller, "why"))
        return found["causes"] if found is not None else None

    async def _services(self, request: Request, caller: Caller) -> list[Any]:
        ask = self._site.api.ask_if_may
        key = ("services", caller.tenants is None)
        found = await self._shared.get(key, lambda: ask(request, caller, "list_services"))
        return found["services"] if found is not None else []

    async def live(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        pulse = self._site.pulse
        return streamed(context, request, caller, lambda stands: looks(pulse, context, stands))

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/", self.now)
        pages.add("GET", "/live", self.live)


async def counted(engine: Engine, tenants: frozenset[str] | None, now: datetime) -> dict[str, Any]:
    """From the ledger, so that it holds for all processes, and for the caller's tenants alone."""
    every = JobQuery(tenant_ids=tenants)
    if tenants is not None and not tenants:
        return {"live": 0, "dead": 0, "spans": {}, "latency": None}
    spans = {}
    for name, span in SPANS.items():
        recent = replace(every, created_from=now - span)
        done, failed = [
            await engine.count(replace(recent, states=(state,)))
            for state in (JobState.SUCCEEDED, JobState.FAILED_FINAL)
        ]
        accepted = await engine.count(recent)
        spans[name] = {"accepted": accepted, "succeeded": done, "failed": failed}
    page = await engine.jobs(replace(every, states=(JobState.SUCCEEDED,), limit=SAMPLE))
    took = [
        (job.completed_at - job.plan.accepted_at).total_seconds()
        for job in page.jobs
        if job.completed_at is not None
    ]
    return {
        "live": await engine.count(replace(every, states=LIVE)),
        "dead": await engine.count(replace(every, dlq=True)),
        "spans": spans,
        "latency": latency(took),
    }


def latency(took: list[float]) -> dict[str, float] | None:
    if not took:
        return None
    ordered = sorted(took)
    most = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {"median": median(ordered), "p95": most, "jobs": len(ordered)}


def heat_map(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Services by lanes. The tone of a field says how much waits and runs there."""
    services: dict[str, dict[int, dict[str, int]]] = {}
    for row in rows:
        fields = services.setdefault(row["service"], {})
        field = fields.setdefault(row["lane"], {"held": 0, "released": 0, "in_progress": 0})
        for name in field:
            field[name] += row[name]
    for fields in services.values():
        for field in fields.values():
            field["all"] = field["held"] + field["released"] + field["in_progress"]
            field["heat"] = sum(field["all"] > least for least in HEAT)
    lanes = list(range(LANES)) if services else []
    return {"lanes": lanes, "services": dict(sorted(services.items()))}
