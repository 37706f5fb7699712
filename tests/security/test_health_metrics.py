"""Metrics on the health port: where they name tenants, the rule is that of /metrics at the API."""

from functools import partial
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lucius.app.access import key_file
from lucius.app.building import build
from lucius.app.health import health_app
from lucius.app.runtime import Runtime
from lucius.app.settings import load_settings
from lucius.engine.temporal.metrics import TemporalInstruments
from lucius.http.context import Role
from lucius.http.invoker import invoker_app
from lucius.http.owner import Owner, owner_only
from lucius.platform.bodies import ServiceInstruments
from lucius.system.instruments import Instruments
from tests.api.world import ENVELOPE

TENANT = "tenant_secret"


async def runtime_of(folder: Path) -> Runtime:
    settings = load_settings(
        {"LUCIUS_DATA_DIR": str(folder), "LUCIUS_AUTH": "keys", "LUCIUS_STORAGE_BACKEND": "memory"}
    )
    return await build(settings)


@pytest.mark.parametrize("process", ["reconciler", "invoker"])
async def test_a_key_that_may_know_every_tenant_is_needed(tmp_path: Path, process: str) -> None:
    runtime, keys = (
        await runtime_of(tmp_path),
        key_file(load_settings({"LUCIUS_DATA_DIR": str(tmp_path)})),
    )
    statuses: dict[str, int] = {}
    async with runtime.running():
        await runtime.engine.submit({**ENVELOPE, "tenant_id": TENANT})
        app = runtime.health_app()
        if process == "invoker":
            app = invoker_app(runtime.invoker, "secret", app.routes)
        client = httpx.AsyncClient(base_url="http://health", transport=httpx.ASGITransport(app))
        async with client:
            for name, roles, tenants in (
                *((role.value, (role,), None) for role in Role),
                ("of one tenant", (Role.MONITOR,), ("tenant_a",)),
            ):
                _, key = keys.create(name, roles, tenants)
                answer = await client.get("/metrics", headers={"x-api-key": key})
                statuses[name] = answer.status_code
                assert (TENANT in answer.text) == (answer.status_code == 200)
            nobody = await client.get("/metrics")
            assert (nobody.status_code, nobody.json()["code"]) == (401, "UNAUTHENTICATED")
            assert (await client.get("/healthz")).status_code == 200
            assert TENANT not in (await client.get("/readyz")).text
    assert [name for name, status in statuses.items() if status == 200] == ["read", "monitor"]
    assert set(statuses.values()) == {200, 403}


async def test_without_authentication_only_the_user_of_the_process_is_told() -> None:
    for user, status in ((1000, 200), (1001, 403)):
        owner = Owner(1000, whose=partial(lambda user, client, server: user, user))
        app = health_app({}, CollectorRegistry(), authenticate=owner_only(owner))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(base_url="http://health", transport=transport) as client:
            assert (await client.get("/metrics")).status_code == status
            assert (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("instruments", [ServiceInstruments, TemporalInstruments])
def test_services_and_workers_whose_metrics_are_open_name_no_tenant(
    instruments: type[Instruments],
) -> None:
    """They hold no keys to judge a caller by."""
    measures = vars(instruments()).values()
    assert measures
    assert not {label for each in measures for label in each.labels if "tenant" in label}
