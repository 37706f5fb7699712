"""Metrics of the HTTP surface: requests by route and status, and how long they took."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

Observe = Callable[[int, float], None]
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


class HttpMetrics:
    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._requests: Counter | None = None
        if registry is None:
            return
        self._requests = Counter(
            "lucius_http_requests",
            "HTTP requests answered",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "lucius_http_request_seconds",
            "Time to answer an HTTP request",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=registry,
        )

    def observer(self, method: str, route: str) -> Observe:
        """Children are looked up once, not with every request."""
        if self._requests is None:
            return lambda status, seconds: None
        requests, seconds_of = self._requests, self._seconds.labels(method, route)
        by_status: dict[int, Counter] = {}

        def observe(status: int, seconds: float) -> None:
            counter = by_status.get(status)
            if counter is None:
                counter = by_status[status] = requests.labels(method, route, str(status))
            counter.inc()
            seconds_of.observe(seconds)

        return observe
