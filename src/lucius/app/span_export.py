"""Spans leave the process. The one place that knows OpenTelemetry's SDK: imported where spans are wanted."""

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lucius import __version__
from lucius.app.settings import Settings


def exporting(settings: Settings) -> TracerProvider:
    """Address, samplers and batches follow the standard OTEL_ variables."""
    provider = TracerProvider(resource=_resource(settings.system))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _resource(system: str) -> Resource:
    """A name from the standard variables goes first."""
    found = Resource.create({"service.version": __version__})
    if not str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        return found
    return found.merge(Resource({"service.name": system}))
