"""Orders: which there are, how each reads on the command line and for curl, and the forms that give them.

A form is taken only with the token of its session. What it asks for is then asked of the API.
"""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

import orjson
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from lucius.contract.models.control import MAX_LIMIT
from lucius.core.job import RUNNING_JOB, UNSUCCESSFUL_JOB, Job, JobState
from lucius.http.body import read
from lucius.http.console.site import Pages, Site
from lucius.http.context import Role
from lucius.http.listing import JobFilters
from lucius.http.problems import Problem
from lucius.http.routing import Context, KnownCaller, is_list

MAX_FORM: Final = 64 * 1024
FILTERS: Final = tuple(JobFilters.model_fields)
"""What a list of jobs can be narrowed by, and an order for many with it."""
_KINDS: Final = {name: each.annotation for name, each in JobFilters.model_fields.items()}
REPEATED: Final = frozenset(name for name, kind in _KINDS.items() if is_list(kind))
FLAGS: Final = frozenset(name for name, kind in _KINDS.items() if kind is bool)


class OrderQuery(JobFilters):
    """Which order, and for which jobs."""

    verb: str = ""


async def _asked(asked: Annotated[OrderQuery, Query()]) -> None: ...


@dataclass(frozen=True, slots=True)
class OrderForm:
    """`asks`: the operation of the API. `path`: its address, after `/v1/jobs/`."""

    verb: str
    label: str
    about: str
    asks: str
    command: str
    path: str
    states: tuple[JobState, ...]
    danger: bool = False
    immediate: bool = False

    def suits(self, job: Job) -> bool:
        """Whether the job could take it now. The API decides; this only keeps idle buttons away."""
        if self.verb == "dismiss":
            return job.in_dlq
        if self.verb == "retry":
            return job.retry_at is not None and job.state in self.states
        return job.state in self.states and job.redriven_by is None

    def shell(self, base: str, job_id: str) -> str:
        return shell(base, *self.command.split(), job_id)

    def curl(self, base: str, job_id: str, *, signs_in: bool) -> str:
        return curl(f"{base}{self.path.format(job_id)}", {}, signs_in=signs_in)


LIVE: Final = (*RUNNING_JOB, JobState.PAUSING, JobState.PAUSED, JobState.CANCELLING)
JOB_ORDERS: Final = (
    OrderForm(
        "retry",
        "Retry now",
        "What waits for its backoff is tried again at once.",
        "retry",
        "job retry",
        "/v1/jobs/{}:retry",
        RUNNING_JOB,
    ),
    OrderForm(
        "pause",
        "Pause",
        "The running step may finish; no other starts.",
        "pause",
        "job pause",
        "/v1/jobs/{}:pause",
        RUNNING_JOB,
    ),
    OrderForm(
        "resume",
        "Resume",
        "The job goes on where it stopped.",
        "resume",
        "job resume",
        "/v1/jobs/{}:resume",
        (JobState.PAUSING, JobState.PAUSED),
    ),
    OrderForm(
        "redrive",
        "Redrive",
        "A new job runs from the failed step on.",
        "redrive",
        "job redrive",
        "/v1/jobs/{}:redrive",
        UNSUCCESSFUL_JOB,
    ),
    OrderForm(
        "dismiss",
        "Dismiss",
        "It leaves the dead-letter view. Nothing else changes.",
        "dismiss",
        "dlq dismiss",
        "/v1/admin/dlq/{}:dismiss",
        (JobState.FAILED_FINAL,),
    ),
    OrderForm(
        "cancel",
        "Cancel",
        "The running step may finish; no other starts.",
        "cancel",
        "job cancel",
        "/v1/jobs/{}:cancel",
        LIVE,
        danger=True,
        immediate=True,
    ),
)
BULK_VERBS: Final = {
    "retry": "Retry now",
    "pause": "Pause",
    "resume": "Resume",
    "redrive": "Redrive",
    "dismiss": "Dismiss",
    "cancel": "Cancel",
}


ENDED_VERBS: Final = ("redrive", "dismiss")
SERVICE_ORDERS: Final = ("pause", "resume")
PLAN_ORDERS: Final = ("redrive", "stop")


def shell(base: str, *words: str) -> str:
    """A command of `lucius` for the server that this browser has."""
    return shlex.join(["lucius", *words, "--url", base])


def curl(url: str, body: Mapping[str, Any], *, signs_in: bool) -> str:
    key = " -H 'Authorization: Bearer '\"$LUCIUS_API_KEY\"" if signs_in else ""
    data = shlex.quote(orjson.dumps(body).decode())
    return f"curl -X POST {shlex.quote(url)}{key} -H 'Content-Type: application/json' --data {data}"


async def form_of(site: Site, request: Request) -> dict[str, list[str]]:
    """The fields of a form of this session. Refuses any other."""
    content = await read(request, MAX_FORM, form=True)
    try:
        pairs = parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise Problem("INVALID_BODY", "the form cannot be read") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    (given,) = fields.pop("form_token", [""])[:1]
    if not site.seals.is_form_token(request, given):
        detail = "the form carries no token of this session: load its page again, then send it"
        raise Problem("CROSS_ORIGIN", detail)
    return fields


class Orders:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def order_job(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        """One order for one job; then its page shows what became of it."""
        fields = await form_of(self._site, request)
        verb, job_id = request.path_params["verb"], request.path_params["jobId"]
        order = next((each for each in JOB_ORDERS if each.verb == verb), None)
        if order is None:
            raise Problem("NOT_FOUND", f"there is no order {verb[:64]!r} for a job")
        body = said(fields)
        if order.immediate and fields.get("immediate"):
            body["immediate"] = True
        path = {"jobId": job_id}
        answer = await self._site.api.ask(request, caller, order.asks, path=path, body=body)
        shown = answer["jobId"]
        return self._site.to(f"/jobs/{shown}", done=verb)

    async def order_service(
        self, context: Context, request: Request, caller: KnownCaller
    ) -> Response:
        fields = await form_of(self._site, request)
        verb, service = request.path_params["verb"], request.path_params["service"]
        if verb not in SERVICE_ORDERS:
            raise Problem("NOT_FOUND", f"there is no order {verb[:64]!r} for a service")
        path, asks = {"service": service}, f"{verb}_service"
        await self._site.api.ask(request, caller, asks, path=path, body=said(fields))
        return self._site.to("/services", done=verb, service=service)

    async def confirm_many(
        self, context: Context, request: Request, caller: KnownCaller
    ) -> Response:
        """How many jobs an order would reach, before anyone gives it."""
        verb = _verb(request.query_params.get("verb", ""))
        filters, base = order_filters(verb, dict_of(request)), base_of(self._site, request)
        body = {"filter": filters, "dry_run": True, "limit": MAX_LIMIT}
        counted = await self._site.api.ask(request, caller, f"{verb}_many", body=body)
        return self._site.page(
            request,
            caller,
            "order.html",
            verb=verb,
            label=BULK_VERBS[verb],
            filters=filters,
            counted=counted,
            reason=self._site.api.takes(f"{verb}_many", "reason"),
            shell=shell(base, "jobs", verb, *filter_words(filters)),
            curl=curl(
                f"{base}/v1/jobs:{verb}",
                {"filter": filters},
                signs_in=self._site.signs_in,
            ),
        )

    async def order_many(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        """The order itself. It reaches no more jobs than were counted when it was confirmed."""
        fields = await form_of(self._site, request)
        verb, seen = _verb(fields.get("verb", [""])[0]), fields.get("counted", ["0"])[0]
        immediate, filters = bool(fields.get("immediate")), order_filters(verb, fields)
        if not (seen.isascii() and seen.isdigit() and len(seen) <= 9) or int(seen) < 1:
            raise Problem("INVALID_BODY", "no job matched when they were counted: nothing is done")
        limit = min(int(seen), MAX_LIMIT)
        body = {**said(fields), "filter": filters, "limit": limit}
        if immediate and verb == "cancel":
            body["immediate"] = True
        tally = await self._site.api.ask(request, caller, f"{verb}_many", body=body)
        return self._site.page(
            request,
            caller,
            "ordered.html",
            verb=verb,
            label=BULK_VERBS[verb],
            filters=filters,
            tally=tally,
        )

    def add_to(self, pages: Pages) -> None:
        pages.add("GET", "/jobs/order", self.confirm_many, Role.OPERATE, takes=_asked)
        pages.add("POST", "/jobs/order", self.order_many, Role.OPERATE)
        pages.add("POST", "/services/{service}/{verb}", self.order_service, Role.OPERATE)
        pages.add("POST", "/jobs/{jobId}/{verb}", self.order_job, Role.OPERATE)


def said(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Why the order is given, if the form says so."""
    reason = fields.get("reason", [""])[0].strip()
    return {"reason": reason} if reason else {}


def _verb(given: str) -> str:
    if given not in BULK_VERBS:
        raise Problem("INVALID_PARAMETER", f"verb: must be one of {', '.join(BULK_VERBS)}")
    return given


def dict_of(request: Request) -> dict[str, list[str]]:
    query = request.query_params
    return {name: query.getlist(name) for name in query}


def filters_of(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """As the body of an order names them. What is empty was not filled in."""
    filters: dict[str, Any] = {}
    for name in FILTERS:
        found = [word for text in fields.get(name, []) for word in _split(name, text)]
        if found:
            filters[name] = found if name in REPEATED else found[0]
        if found and name in FLAGS:
            filters[name] = found[0].lower() in ("true", "1", "yes")
    return filters


def order_filters(verb: str, fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Orders for live jobs reach no others. One for ended jobs cannot be narrowed to live ones."""
    filters = filters_of(fields)
    if filters.pop("live", False) and verb in ENDED_VERBS:
        raise Problem("INVALID_PARAMETER", f"live: {verb} is for jobs that have ended")
    return filters


def _split(name: str, text: str) -> list[str]:
    parts = text.split(",") if name in REPEATED else [text]
    return [part.strip() for part in parts if part.strip()]


_OPTIONS: Final = {
    "tenant_id": "--tenant",
    "request_type": "--type",
    "created_from": "--from",
    "created_to": "--to",
}


def filter_words(filters: Mapping[str, Any]) -> list[str]:
    """As options of the command line."""
    words: list[str] = []
    for name, value in filters.items():
        option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            words.append(option)
            continue
        for each in value if isinstance(value, list) else [value]:
            words += [option, str(each)]
    return words


def just_given(request: Request, verbs: Collection[str]) -> str | None:
    """The order that a page says was taken: one that there is, whatever its address says."""
    done = request.query_params.get("done")
    return done if done in verbs else None


def base_of(site: Site, request: Request) -> str:
    """Where browsers reach the server: as the settings say, or as this one does."""
    return site.url or f"{request.url.scheme}://{request.url.netloc}{site.root}"


# Redrive plans: counted and given from a group of failures, watched and stopped on the page of failures.

MAX_NUMBER: Final = 15
"""Characters: JSON has no room for many more digits."""
DEFAULTS: Final = {"canary": "5", "rate": "10", "stop_after": "10%"}


async def _plan_parameters(group: str = "") -> None:
    """The group of failures."""


class Plans:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def confirm_plan(
        self, context: Context, request: Request, caller: KnownCaller
    ) -> Response:
        """How many jobs the plan would take, before anyone starts it."""
        group = request.query_params.get("group", "")
        found = await self._site.api.ask(
            request, caller, "get_failure_group", path={"group": group}
        )
        filters = {"group": group}
        counted = await self._site.api.ask(
            request, caller, "redrive_many", body={"filter": filters, "dry_run": True}
        )
        base = base_of(self._site, request)
        words = (
            "redrive",
            "--group",
            group,
            "--canary",
            "5",
            "--rate",
            "10/s",
            "--stop-after",
            "10%",
        )
        return self._site.page(
            request,
            caller,
            "plan.html",
            group=found,
            matched=counted["matched"],
            defaults=DEFAULTS,
            shell=shell(base, *words),
            curl=curl(f"{base}/v1/redrives", {"filter": filters}, signs_in=self._site.signs_in),
        )

    async def start_plan(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        fields = await form_of(self._site, request)
        given = {name: fields.get(name, [text])[0] for name, text in DEFAULTS.items()}
        body: dict[str, Any] = {
            **said(fields),
            "filter": {"group": fields.get("group", [""])[0]},
            "canary": number_in(given["canary"]),
            "rate": number_in(given["rate"]),
            "stop_after": given["stop_after"],
        }
        await self._site.api.ask(request, caller, "start_redrive", body=body)
        return self._site.to("/failures", done="redrive")

    async def stop_plan(self, context: Context, request: Request, caller: KnownCaller) -> Response:
        await form_of(self._site, request)
        path = {"planId": request.path_params["planId"]}
        await self._site.api.ask(request, caller, "stop_redrive", path=path, body={})
        return self._site.to("/failures", done="stop")

    def add_to(self, pages: Pages) -> None:
        pages.add(
            "GET", "/failures/redrive", self.confirm_plan, Role.OPERATE, takes=_plan_parameters
        )
        pages.add("POST", "/failures/redrive", self.start_plan, Role.OPERATE)
        pages.add("POST", "/redrives/{planId}/stop", self.stop_plan, Role.OPERATE)


def number_in(text: str) -> int | float:
    try:
        if len(text) <= MAX_NUMBER:
            return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        pass
    raise Problem("INVALID_BODY", f"{text[:32]!r} is no number that a plan takes")
