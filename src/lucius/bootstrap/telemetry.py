"""Where logs and spans of this process go, by the settings. The one place that knows OpenTelemetry's SDK."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
)

from lucius import __version__
from lucius.bootstrap.otlp import OtlpExporter, endpoint_of, headers_of
from lucius.settings import Settings
from lucius.telemetry.logs import configure_logs
from lucius.telemetry.tracing import trace_with


@contextmanager
def observed(settings: Settings) -> Iterator[None]:
    """Logs and traces while a process runs; what is still unsent goes out at its end."""
    configure_logs(settings.log_level, settings.log_format)
    provider = span_provider(settings)
    if provider is None:
        yield
        return
    trace.set_tracer_provider(provider)  # so that services' own spans go the same way
    trace_with(provider)
    try:
        yield
    finally:
        trace_with(None)
        provider.shutdown()


def _resource(system: str) -> Resource:
    """A name from the standard variables goes first."""
    found = Resource.create({"service.version": __version__})
    if not str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        return found
    return found.merge(Resource({"service.name": system}))


def span_provider(settings: Settings) -> TracerProvider | None:
    """None where nobody wants spans. Samplers and batches follow the standard OTEL_ variables."""
    endpoint = endpoint_of(settings.otlp_endpoint)
    if endpoint is None and settings.traces == "none":
        return None
    provider = TracerProvider(resource=_resource(settings.system))
    if endpoint is not None:
        exporter = OtlpExporter(endpoint, headers_of())
        provider.add_span_processor(BatchSpanProcessor(exporter))
    if settings.traces == "console":
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    return provider
