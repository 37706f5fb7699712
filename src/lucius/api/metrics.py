"""Metrics of the HTTP surface: requests by route and status, and how long they took."""

from typing import Final

from prometheus_client import CollectorRegistry

from lucius.telemetry.instruments import Count, Distribution, Instruments

_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
UNROUTED: Final = "(unrouted)"
"""The route of requests that none takes. What they ask for is no label: anyone may ask for anything."""
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_TEXTS: Final = {status: str(status) for status in range(100, 600)}


class HttpInstruments(Instruments):
    def __init__(self) -> None:
        route = ("method", "route")
        self.requests = Count(
            "lucius_http_requests_total", "HTTP requests answered", (*route, "status")
        )
        self.seconds = Distribution(
            "lucius_http_request_seconds", "Time to answer an HTTP request", route, _BOUNDS
        )


class HttpMetrics(HttpInstruments):
    """Counts even where nobody scrapes: that is cheaper than asking."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        super().__init__()
        if registry is not None:
            self.register(registry)

    def unrouted(self, method: str, status: int) -> None:
        """An answer that no operation gave."""
        self.requests.add(method if method in _METHODS else "OTHER", UNROUTED, _TEXTS[status])

    def observe(self, method: str, route: str, status: int, elapsed: float) -> None:
        self.requests.add(method, route, _TEXTS[status])
        self.seconds.add(elapsed, method, route)
