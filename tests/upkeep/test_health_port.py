"""A process without the API answers probes and scrapes, and nothing else."""

import httpx
from prometheus_client import CollectorRegistry, Gauge

from lucius.api.health import health_app
from lucius.bootstrap.health import health_port
from lucius.bootstrap.listening import LOOPBACK, free_port
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
