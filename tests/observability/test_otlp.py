"""Spans reach a collector over HTTP, and one that is away harms nobody."""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from lucius.bootstrap.otlp import OtlpExporter, endpoint_of, headers_of
from lucius.bootstrap.telemetry import observed, span_provider
from lucius.settings import load_settings
from lucius.telemetry import tracing

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Take)
        self.taken: list[tuple[str, str | None, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Take(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert isinstance(self.server, Collector)
        self.server.taken.append((self.path, self.headers["x-team"], body))
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
        settings = {"LUCIUS_OTLP_ENDPOINT": collector.url, "LUCIUS_SYSTEM": "plant-7"}
        provider = span_provider(load_settings(settings))
        assert isinstance(provider, TracerProvider)
        tracing.trace_with(provider)
        with tracing.open_span("outer", f"00-{TRACE}-{SPAN}-01") as outer:
            outer.note("lucius.attempt_no", 2)
            outer.failed("EMPTY")
        tracing.trace_with(None)
        provider.shutdown()
    ((path, team, body),) = collector.taken
    assert (path, team) == ("/v1/traces", "blue team")
    (resource,) = body["resourceSpans"]
    names = {each["key"]: each["value"] for each in resource["resource"]["attributes"]}
    assert names["service.name"] == {"stringValue": "plant-7"}
    (span,) = resource["scopeSpans"][0]["spans"]
    assert (span["traceId"], span["parentSpanId"], span["name"]) == (TRACE, SPAN, "outer")
    assert span["attributes"] == [{"key": "lucius.attempt_no", "value": {"intValue": "2"}}]
    assert span["status"] == {"code": 2, "message": "EMPTY"}
    assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) > 10**18


def test_a_collector_that_is_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    exporter = OtlpExporter("http://127.0.0.1:1/v1/traces", {})
    for _ in range(3):
        exporter.export([])
    exporter.shutdown()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    ("given", "environ", "endpoint"),
    [
        ("", {}, None),
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://o:4318/"}, "http://o:4318/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"}, "http://t/x"),
        ("http://c", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"}, "http://c/v1/traces"),
    ],
)
def test_our_own_setting_goes_before_the_standard_ones(
    given: str, environ: dict[str, str], endpoint: str | None
) -> None:
    assert endpoint_of(given, environ) == endpoint


def test_headers_may_be_many_or_none() -> None:
    assert headers_of({}) == {}
    given = {"OTEL_EXPORTER_OTLP_HEADERS": "a=1, Authorization=Bearer%20x"}
    assert headers_of(given) == {"a": "1", "authorization": "Bearer x"}


def test_spans_are_printed_where_so_configured_and_nowhere_by_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr("opentelemetry.trace.set_tracer_provider", lambda provider: None)
    with observed(load_settings({})):
        assert not tracing.active()
    with observed(load_settings({"LUCIUS_TRACES": "console"})), tracing.open_span("shown", None):
        pass
    assert '"name": "shown"' in capsys.readouterr().err
    assert not tracing.active()
    logging.captureWarnings(False)
