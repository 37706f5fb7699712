"""Traces: a span is opened under the W3C `traceparent` and `tracestate` that a message or request carries.

Off until a provider is given. While off, opening a span is one look at a flag.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lucius.core.ids import is_traceparent, tracestate
from lucius.core.text import printable

NAME: Final = "lucius"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_ROOT: Final = contexts.Context()
_tracer: trace.Tracer | None = None

Attributes = Mapping[str, str | int]


def trace_with(provider: trace.TracerProvider | None) -> None:
    """From now on spans go to this provider; None turns tracing off."""
    global _tracer
    _tracer = provider.get_tracer(NAME) if provider is not None else None


def adopt_provider() -> None:
    """A process that set a provider of its own (a service, say) gets LUCIUS's spans there too."""
    provider = trace.get_tracer_provider()
    if _tracer is None and not isinstance(provider, trace.ProxyTracerProvider):
        trace_with(provider)


def active() -> bool:
    return _tracer is not None


class NoSpan:
    """Stands for a span while tracing is off: it does nothing, and its `traceparent` is None."""

    __slots__ = ()
    traceparent: str | None = None
    tracestate: str | None = None

    def below(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """The message unchanged, because no span was opened."""
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None: ...

    def note(self, name: str, value: str | int) -> None: ...

    def failed(self, reason: str) -> None: ...

    def end(self) -> None:
        """For a span that is not entered: what it stands for begins and ends in different places."""


NO_SPAN: Final = NoSpan()


class OpenSpan(NoSpan):
    """A span. While it is entered it is the current one, so spans of other libraries become its children."""

    __slots__ = ("_span", "_token", "traceparent", "tracestate")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Any = None
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, _ROOT))
        self.traceparent = carrier.get("traceparent")
        self.tracestate = carrier.get("tracestate")

    def below(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """The message with this span as its parent."""
        given = {**message, "traceparent": self.traceparent}
        given.pop("tracestate", None)
        return given if self.tracestate is None else {**given, "tracestate": self.tracestate}

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        contexts.detach(self._token)
        if kind is not None:
            self.failed(kind.__name__)
        self._span.end()

    def end(self) -> None:
        self._span.end()

    def note(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def failed(self, reason: str) -> None:
        """Mark the span as failed, with a class or a code. Error texts stay out: they may hold secrets."""
        said = printable(reason)
        self._span.set_attribute("error.type", said)
        self._span.set_status(Status(StatusCode.ERROR, said))


def open_span(
    name: str,
    parent: object,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Attributes | None = None,
    began_ns: int | None = None,
    state: object = None,
) -> NoSpan:
    """Open a span below `parent`, a traceparent. A missing or malformed one begins a new trace.

    `state` is the tracestate that came with it.
    """
    if _tracer is None:
        return NO_SPAN
    span = _tracer.start_span(
        name, context=_above(parent, state), kind=kind, attributes=attributes, start_time=began_ns
    )
    return OpenSpan(span)


def _above(traceparent: object, state: object) -> contexts.Context:
    """The parent's context. Our own rules come first: W3C allows more than fits a ledger row."""
    if not is_traceparent(traceparent):
        return _ROOT
    carrier = {"traceparent": str(traceparent), "tracestate": tracestate(state) or ""}
    return _PROPAGATOR.extract(carrier, _ROOT)


def trace_id(traceparent: object) -> str | None:
    return traceparent[3:35] if isinstance(traceparent, str) else None


def current_trace_id() -> str | None:
    if _tracer is None:
        return None
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None
