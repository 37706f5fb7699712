"""Reads: jobs, steps, executions, events and lists, always as last committed."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lucius.api.context import ApiContext, Caller, Role
from lucius.api.listing import PARAMETERS, list_page
from lucius.api.openapi import header_parameter, path_parameter, query_parameter
from lucius.api.operation import Answer, Handler, Operation
from lucius.api.problems import Problem, parameter_problem
from lucius.api.requests import flag, seconds, visible_job, whole
from lucius.api.routing import Context, KnownCaller, json_response, place_to_wait, waiting
from lucius.api.streams import Feeds
from lucius.api.views import etag_of, event_view, executions_view, job_view, step_views
from lucius.contract.envelope import JsonObject
from lucius.contract.shapes import EventsShape, ExecutionsShape, JobShape, JobsShape, StepsShape
from lucius.core.job import Job

_MAX_SEQ: Final = 2**53
_STREAM: Final = "text/event-stream"
_JOB_ID: Final = path_parameter("jobId", "The job's id")


async def get_job(context: Context, request: Request, caller: KnownCaller) -> Response:
    wait = seconds(request, "wait_seconds", context.options.max_wait_seconds)
    job = await visible_job(context, request, caller)
    if wait and not job.terminal:
        with waiting(context, request, caller):
            async with context.watch.while_it(caller.stands):
                job = await _settled(context, job, wait)
    etag = etag_of(job)
    if _unchanged(request, etag):
        return Response(status_code=304, headers={"etag": etag})
    return json_response(job_view(job), headers={"etag": etag})


async def _settled(context: ApiContext, job: Job, wait: float) -> Job:
    """The job once it is terminal, or as it is when the time is over. Woken by the commit."""
    newer = await context.engine.ended(job.job_id, wait)
    if newer is None:
        raise Problem("JOB_NOT_FOUND")
    return newer


def _unchanged(request: Request, etag: str) -> bool:
    given = request.headers.get("if-none-match")
    if given is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return "*" in tags or etag in tags


async def list_steps(context: Context, request: Request, caller: KnownCaller) -> Response:
    job = await visible_job(context, request, caller)
    steps = step_views(job)
    wanted = request.query_params.get("step_id")
    if wanted is not None:
        steps = [step for step in steps if step["step_id"] == wanted]
        if not steps:
            raise Problem("STEP_NOT_FOUND")
    return json_response({"steps": steps})


async def list_executions(context: Context, request: Request, caller: KnownCaller) -> Response:
    return json_response(executions_view(await visible_job(context, request, caller)))


async def list_events(context: Context, request: Request, caller: KnownCaller) -> Response:
    after = whole(request, "after", 0, 0, _MAX_SEQ)
    limit = whole(request, "limit", 100, 1, context.options.max_page)
    seen = _last_event_id(request)
    stream = flag(request, "stream") or _STREAM in request.headers.get("accept", "")
    job = await visible_job(context, request, caller)
    if stream:
        return _stream(context, request, caller, job, max(after, seen))
    events = await context.engine.events(job.job_id, after, limit)
    return json_response({"events": [event_view(job.job_id, event) for event in events]})


class EventStream(StreamingResponse):
    """Holds a place among the requests that wait, until it has ended."""

    def __init__(self, chunks: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(chunks, media_type=_STREAM, headers=headers)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _stream(
    context: ApiContext, request: Request, caller: Caller, job: Job, after: int
) -> Response:
    """204 tells a browser that there is nothing more to come back for."""
    if job.terminal and after >= job.seq:
        return Response(status_code=204)
    feeds: Feeds = request.app.state.feeds
    return EventStream(feeds.stream(job, after, caller), place_to_wait(context, request, caller))


def _last_event_id(request: Request) -> int:
    text = request.headers.get("last-event-id")
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) > _MAX_SEQ:
        raise parameter_problem("Last-Event-ID", "must be the id of an event")
    return int(text)


async def list_jobs(context: Context, request: Request, caller: KnownCaller) -> Response:
    return await list_page(context, request, caller, dlq=False)


def _operation(
    path: str,
    handler: Handler,
    summary: str,
    answers: dict[int, Answer],
    *parameters: JsonObject,
    description: str = "",
) -> Operation:
    return Operation(
        "GET",
        f"/v1/jobs/{{jobId}}{path}",
        handler,
        summary,
        "jobs",
        Role.READ,
        answers,
        parameters=(_JOB_ID, *parameters),
        description=description,
    )


OPERATIONS: Final = (
    _operation(
        "",
        get_job,
        "A job with its steps",
        {
            200: Answer("The job", JobShape, headers={"ETag": "The job's version"}),
            304: Answer("It is still the version in If-None-Match"),
        },
        query_parameter(
            "wait_seconds",
            "Answer when the job is terminal, or as it is after so many seconds",
            {"type": "number", "minimum": 0, "maximum": 60},
        ),
        header_parameter("If-None-Match", "An ETag that the caller has"),
        description="`explanation` says in a sentence why the job is where it is.",
    ),
    _operation(
        "/steps",
        list_steps,
        "The steps of a job",
        {200: Answer("The steps in their order", StepsShape)},
        query_parameter("step_id", "Only this step"),
    ),
    _operation(
        "/executions",
        list_executions,
        "Every attempt of every step",
        {200: Answer("The attempts, and the phase they add up to", ExecutionsShape)},
    ),
    _operation(
        "/events",
        list_events,
        "The history of a job, as a page or as a stream",
        {
            200: Answer("Events in order, without gaps", EventsShape, media=_STREAM),
            204: Answer("The stream has nothing more: the job has ended"),
        },
        query_parameter(
            "after",
            "Only events past this `seq`",
            {"type": "integer", "minimum": 0, "maximum": _MAX_SEQ},
        ),
        query_parameter(
            "limit", "Events on a page", {"type": "integer", "minimum": 1, "maximum": 500}
        ),
        query_parameter(
            "stream", "Server-sent events, as with Accept: text/event-stream", {"type": "boolean"}
        ),
        header_parameter(
            "Last-Event-ID",
            "Continue a stream after this event",
            {"type": "integer", "minimum": 0, "maximum": _MAX_SEQ},
        ),
    ),
    Operation(
        "GET",
        "/v1/jobs",
        list_jobs,
        "Jobs, newest first",
        "jobs",
        Role.READ,
        {200: Answer("A page of jobs, without their steps", JobsShape)},
        parameters=PARAMETERS,
    ),
)
