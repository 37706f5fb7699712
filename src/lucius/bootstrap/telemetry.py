"""Where logs and spans of this process go, by the settings. The one place that knows OpenTelemetry's SDK."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
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
from lucius.telemetry.logs import configure_logs
from lucius.telemetry.tracing import trace_with

log = logging.getLogger("lucius.settings")

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@contextmanager
def observed(settings: Settings) -> Iterator[None]:
    """Logs and traces while a process runs; what is still unsent goes out at its end."""
    configure_logs(settings.log_level, settings.log_format)
    for warning in settings.warnings:
        log.warning(warning)
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


def span_provider(settings: Settings) -> TracerProvider | None:
    """None where nobody wants spans. Samplers and batches follow the standard OTEL_ variables."""
    exports = bool(settings.otlp_endpoint) or any(os.environ.get(name) for name in ENDPOINTS)
    if not exports and settings.traces == "none":
        return None
    provider = TracerProvider(resource=_resource(settings.system))
    if exports:
        provider.add_span_processor(BatchSpanProcessor(_exporter(settings.otlp_endpoint)))
    if settings.traces == "console":
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    return provider
