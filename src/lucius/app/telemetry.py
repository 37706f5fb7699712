"""Where logs and spans of this process go, by the settings."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry import trace

from lucius.app.settings import Settings
from lucius.system.logs import configure_logs
from lucius.system.tracing import trace_with

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

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


def span_provider(settings: Settings) -> "TracerProvider | None":
    """None where nobody wants spans. Then OpenTelemetry's SDK is not imported: it is large."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return None
    from lucius.app.span_export import exporting

    return exporting(settings)
