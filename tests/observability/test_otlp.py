"""Spans reach a collector over HTTP, and one that is away harms nobody."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from lucius.app.settings import load_settings
from lucius.app.telemetry import span_provider
from lucius.system import tracing

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Taken(NamedTuple):
    path: str
    team: str | None
    request: ExportTraceServiceRequest


class Collector(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Take)
        self.taken: list[Taken] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Take(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request = ExportTraceServiceRequest.FromString(body)
        assert isinstance(self.server, Collector)
        self.server.taken.append(Taken(self.path, self.headers["x-team"], request))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()


def test_a_span_arrives_with_its_ids_its_parent_and_the_name_of_the_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue%20team")
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        provider = span_provider(load_settings({"LUCIUS_SYSTEM": "plant-7"}))
        assert isinstance(provider, TracerProvider)
        tracing.trace_with(provider)
        with tracing.open_span("outer", f"00-{TRACE}-{SPAN}-01") as outer:
            outer.note("lucius.attempt_no", 2)
            outer.failed("EMPTY")
        tracing.trace_with(None)
        provider.shutdown()
    (taken,) = collector.taken
    assert (taken.path, taken.team) == ("/v1/traces", "blue team")
    (resource,) = taken.request.resource_spans
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "plant-7"
    (span,) = resource.scope_spans[0].spans
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.name) == (TRACE, SPAN, "outer")
    about = {each.key: each.value for each in span.attributes}
    assert about.keys() == {"lucius.attempt_no", "error.type"}
    assert (about["lucius.attempt_no"].int_value, about["error.type"].string_value) == (2, "EMPTY")
    assert (span.status.code, span.status.message) == (2, "EMPTY")
    assert span.end_time_unix_nano >= span.start_time_unix_nano > 10**18
