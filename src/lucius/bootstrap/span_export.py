"""Spans leave the process. The one place that knows OpenTelemetry's SDK: imported where spans are wanted."""

import sys

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
)

from lucius import __version__
from lucius.settings import Settings


def exporting(settings: Settings, *, over_otlp: bool) -> TracerProvider:
    """Samplers and batches follow the standard OTEL_ variables."""
    provider = TracerProvider(resource=_resource(settings.system))
    if over_otlp:
        provider.add_span_processor(BatchSpanProcessor(_exporter(settings.otlp_endpoint)))
    if settings.traces == "console":
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    return provider


def _exporter(endpoint: str) -> SpanExporter:
    """Our own setting goes before the standard variables. Imported here: few need it, and it is large."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)


def _resource(system: str) -> Resource:
    """A name from the standard variables goes first."""
    found = Resource.create({"service.version": __version__})
    if not str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        return found
    return found.merge(Resource({"service.name": system}))
