"""A process without the API answers probes and scrapes, and nothing else."""

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from lucius.app import lifecycle
from lucius.app.health import health_app, health_port
from lucius.app.lifecycle import LOOPBACK, UNASKED, free_port, listen
from lucius.core.errors import LuciusError


async def test_it_says_whether_the_process_lives_and_is_ready() -> None:
    well, port = [True], free_port()
    registry, asked = CollectorRegistry(), list[dict[str, bool]]()
    Gauge("up_to_date", "", registry=registry).set(7)

    async def check() -> None:
        if not well[0]:
            raise LuciusError("the secret place cannot be reached")

    async def refresh(up: object) -> None:
        asked.append(dict(up))  # type: ignore[call-overload]

    app = health_app({"ledger": check}, registry, refresh)
    async with (
        health_port(app, LOOPBACK, port),
        httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{port}") as client,
    ):
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]) == (200, {"ledger": "ok"})
        well[0] = False
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]) == (503, {"ledger": "failed"})
        assert "secret place" not in ready.text, "anyone may ask; the log says why"
        assert "up_to_date 7.0" in (await client.get("/metrics")).text
        assert asked == [{"ledger": False}]
        assert (await client.get("/v1/jobs")).status_code == 404


async def test_without_a_port_nothing_listens() -> None:
    async with health_port(health_app({}, CollectorRegistry()), LOOPBACK, None):
        pass


def test_a_port_for_a_process_that_is_yet_to_start_is_none_that_anybody_is_given_by_chance() -> (
    None
):
    """Connections, and whoever asks for any port, get those from 32,768 up."""
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 10
    assert all(port in UNASKED for port in ports)


def test_where_those_are_taken_any_free_port_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = listen(LOOPBACK, 0)
    number = taken.getsockname()[1]
    monkeypatch.setattr(lifecycle, "UNASKED", range(number, number + 1))
    assert free_port() != number
    taken.close()
