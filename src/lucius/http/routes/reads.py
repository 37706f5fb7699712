"""Reads: jobs, steps, executions, events and lists, always as last committed."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lucius.contract.models.base import MayMiss
from lucius.contract.models.jobs import EventsView, ExecutionsView, JobsView, JobView, StepsView
from lucius.core.job import Job
from lucius.http.context import ApiContext, Caller, Role
from lucius.http.listing import JobsQuery, list_page
from lucius.http.parameters import (
    FlagParameter,
    JobIdInPath,
    Limit,
    SecondsParameter,
    Seq,
    seconds_to_wait,
    visible_job,
)
from lucius.http.problems import Problem, header, problems
from lucius.http.routing import (
    ApiRoute,
    Context,
    KnownCaller,
    ShortRoute,
    json_response,
    needs,
    place_to_wait,
    waiting,
)
from lucius.http.streams import Feeds
from lucius.http.views import etag_of, event_view, executions_view, job_view, step_views

_STREAM: Final = "text/event-stream"
busy = APIRouter(route_class=ShortRoute, tags=["jobs"], dependencies=[needs(Role.READ)])
router = APIRouter(route_class=ApiRoute, tags=["jobs"], dependencies=[needs(Role.READ)])


async def _job(
    job_id: JobIdInPath,
    wait_seconds: Annotated[
        SecondsParameter,
        Query(
            description="Wait for the end of the job, at most this many seconds, and answer with it"
        ),
    ] = 0,
    if_none_match: Annotated[
        MayMiss[str], Header(alias="If-None-Match", description="An ETag that the caller has")
    ] = None,
) -> None: ...


@busy.get(
    "/v1/jobs/{jobId}",
    summary="A job with its steps",
    description="`explanation` says in a sentence why the job is where it is.",
    dependencies=[Depends(_job)],
    response_model=JobView,
    response_description="The job",
    responses={
        200: {"headers": header("ETag", "The job's version")},
        304: {"description": "It is still the version in If-None-Match"},
        **problems("TOO_MANY_WAITING"),
    },
)
async def get_job(context: Context, request: Request, caller: KnownCaller) -> Response:
    wait = seconds_to_wait(request)
    job = await visible_job(context, request.path_params["jobId"], caller)
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


@router.get(
    "/v1/jobs/{jobId}/steps",
    summary="The steps of a job",
    response_model=StepsView,
    response_description="The steps in their order",
    responses=problems("STEP_NOT_FOUND"),
)
async def list_steps(
    context: Context,
    caller: KnownCaller,
    job_id: JobIdInPath,
    step_id: Annotated[MayMiss[str], Query(description="Only this step")] = None,
) -> Response:
    job = await visible_job(context, job_id, caller)
    steps = step_views(job)
    if step_id is not None:
        steps = [step for step in steps if step["step_id"] == step_id]
        if not steps:
            raise Problem("STEP_NOT_FOUND")
    return json_response({"steps": steps})


@router.get(
    "/v1/jobs/{jobId}/executions",
    summary="Every attempt of every step",
    response_model=ExecutionsView,
    response_description="The attempts, and the phase they add up to",
)
async def list_executions(context: Context, caller: KnownCaller, job_id: JobIdInPath) -> Response:
    return json_response(executions_view(await visible_job(context, job_id, caller)))


@router.get(
    "/v1/jobs/{jobId}/events",
    summary="The history of a job, as a page or as a stream",
    response_model=EventsView,
    response_description="Events in order, without gaps",
    responses={
        200: {"content": {_STREAM: {}}},
        204: {"description": "The stream has nothing more: the job has ended"},
        **problems("TOO_MANY_WAITING"),
    },
)
async def list_events(
    context: Context,
    request: Request,
    caller: KnownCaller,
    job_id: JobIdInPath,
    after: Annotated[Seq, Query(description="Only events past this `seq`")] = 0,
    limit: Annotated[Limit, Query(description="Events on a page")] = 100,
    stream: Annotated[
        FlagParameter, Query(description="Server-sent events, as with Accept: text/event-stream")
    ] = False,
    last_event_id: Annotated[
        Seq,
        Header(alias="Last-Event-ID", description="Continue a stream after this event"),
    ] = 0,
) -> Response:
    job = await visible_job(context, job_id, caller)
    if stream or _STREAM in request.headers.get("accept", ""):
        return _stream(context, request, caller, job, max(after, last_event_id))
    events = await context.engine.events(job.job_id, after, limit)
    return json_response({"events": [event_view(job.job_id, event) for event in events]})


@router.get(
    "/v1/jobs",
    summary="Jobs, newest first",
    response_model=JobsView,
    response_description="A page of jobs, without their steps",
    responses=problems("INVALID_CURSOR", "NOT_SUPPORTED"),
)
async def list_jobs(
    context: Context, request: Request, caller: KnownCaller, asked: Annotated[JobsQuery, Query()]
) -> Response:
    return await list_page(context, request, caller, asked, dlq=False)


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
