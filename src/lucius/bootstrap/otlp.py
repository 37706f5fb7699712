"""Spans to an OTLP collector, as JSON over HTTP. It runs in the SDK's export thread, never on the loop."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import httpx
import orjson
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

log = logging.getLogger("lucius.traces")

TIMEOUT: Final = 10.0
KINDS: Final = {
    SpanKind.INTERNAL: 1,
    SpanKind.SERVER: 2,
    SpanKind.CLIENT: 3,
    SpanKind.PRODUCER: 4,
    SpanKind.CONSUMER: 5,
}


def endpoint_of(given: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Where spans go: our own setting first, then the standard variables. None: nowhere."""
    base = given or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not given and (whole := environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return whole
    return f"{base.rstrip('/')}/v1/traces" if base else None


def headers_of(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`OTEL_EXPORTER_OTLP_HEADERS`: `name=value`, comma-separated, percent-encoded."""
    pairs = (
        part.partition("=") for part in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")
    )
    return {
        name.strip().lower(): unquote(value.strip()) for name, _, value in pairs if name.strip()
    }


class OtlpExporter(SpanExporter):
    """What cannot be delivered is dropped, and said once until it works again."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        self._endpoint = endpoint
        self._client = httpx.Client(
            headers={**headers, "content-type": "application/json"}, timeout=TIMEOUT
        )
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            answer = self._client.post(self._endpoint, content=orjson.dumps(exported(spans)))
            reason = None if answer.is_success else f"HTTP {answer.status_code}"
        except httpx.HTTPError as error:
            reason = repr(error)
        if reason is not None and not self._failing:
            log.warning("spans are lost, the collector does not take them: %s", reason)
        self._failing = reason is not None
        return SpanExportResult.FAILURE if self._failing else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._client.close()


def exported(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """An ExportTraceServiceRequest. All spans of a process have one resource."""
    if not spans:
        return {"resourceSpans": []}
    scope = {"scope": {"name": "lucius"}, "spans": [_span(span) for span in spans]}
    resource = {"attributes": _attributes(spans[0].resource.attributes)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _span(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None, "a span that has ended has a context"
    return {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        **({"parentSpanId": f"{span.parent.span_id:016x}"} if span.parent is not None else {}),
        "name": span.name,
        "kind": KINDS[span.kind],
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": _attributes(span.attributes),
        "events": [_event(event) for event in span.events],
        "status": {"code": span.status.status_code.value, "message": span.status.description or ""},
        "flags": int(context.trace_flags),
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.timestamp),
        "name": event.name,
        "attributes": _attributes(event.attributes),
    }


def _attributes(attributes: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in (attributes or {}).items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}
