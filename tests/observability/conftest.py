"""Spans of a test, kept in memory."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lucius.system.tracing import trace_with


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Tracing is on while this is there."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_with(provider)
    yield exporter
    trace_with(None)
    provider.shutdown()
