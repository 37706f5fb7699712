"""One span for each HTTP request, opened once its parent is known.

The parent is the `traceparent` of the body where there is one, else that of the header, each with the
`tracestate` beside it. So the span is opened by the handler that has read the body, or at the end for
those that never ask; it begins with the request either way. Without tracing nothing of this is on the
way of a request.
"""

import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from opentelemetry.trace import SpanKind

from lucius.core.ids import is_traceparent
from lucius.core.inputs import Callback
from lucius.core.job import Job
from lucius.system import tracing
from lucius.system.spans import applying_request


class Parent(NamedTuple):
    """What a trace goes on from, as it was given; either may be missing or malformed."""

    traceparent: object = None
    tracestate: object = None


NOBODY: Final = Parent()


class RequestSpan:
    def __init__(self, method: str, path: str, header: Parent) -> None:
        self._method = method
        self._path = path
        self._header = header
        self._token = _request.set(self)
        self._began_ns = time.time_ns()
        self.span: tracing.NoSpan | None = None

    def open(self, given: Parent, otherwise: Parent = NOBODY) -> tracing.NoSpan:
        """The first to ask names the parent; a traceparent that is malformed counts as none."""
        if self.span is None:
            method, path = self._method, self._path
            parents = (given, self._header, otherwise)
            above, state = next((p for p in parents if is_traceparent(p.traceparent)), NOBODY)
            about = {"http.request.method": method, "http.route": path}
            name, kind = f"{method} {path}", SpanKind.SERVER
            self.span = tracing.open_span(name, above, kind, about, self._began_ns, state)
            self.span.__enter__()
        return self.span

    def answered(self, status: int) -> None:
        span = self.open(NOBODY)
        span.note("http.response.status_code", status)
        if status >= 500:
            span.failed(str(status))
        span.__exit__(None, None, None)
        _request.reset(self._token)


_request: ContextVar[RequestSpan | None] = ContextVar("request_span", default=None)


def continue_trace(envelope: dict[str, Any]) -> None:
    """The job goes on below this request's span. A malformed traceparent is left to be refused."""
    request = _request.get()
    if request is None:
        return
    given = _of(envelope)
    span = request.open(given)
    if given.traceparent is None or is_traceparent(given.traceparent):
        envelope["traceparent"] = span.traceparent
        envelope.pop("tracestate", None)
        if span.tracestate is not None:
            envelope["tracestate"] = span.tracestate


def applying_here(
    reply: Mapping[str, Any], received: Callback, job: Job, *, alone: bool
) -> tracing.NoSpan:
    """The span of a reply in the trace that it names, or else in that of its job.

    If it is alone in its request, the request's span is between the two.
    """
    request = _request.get()
    if request is None:
        return tracing.NO_SPAN
    own, of_job = _of(reply), Parent(job.plan.traceparent, job.plan.extra.get("tracestate"))
    if alone:
        return applying_request(request.open(own, of_job).below(reply), received)
    return applying_request(
        {**reply, **of_job._asdict()} if not own.traceparent else reply, received
    )


def span_of(method: str, path: str, scope: Mapping[str, Any]) -> RequestSpan:
    """The span of a request, from now on. Say what it was answered with."""
    return RequestSpan(method, path, _header(scope["headers"]))


def _of(message: Mapping[str, Any]) -> Parent:
    return Parent(message.get("traceparent"), message.get("tracestate"))


def _header(headers: Iterable[tuple[bytes, bytes]]) -> Parent:
    """`tracestate` may come in several headers, which are one list."""
    above, states = None, []
    for name, value in headers:
        if name == b"traceparent":
            above = above or value.decode("latin-1")
        elif name == b"tracestate":
            states.append(value.decode("latin-1"))
    return Parent(above, ",".join(states) or None)
