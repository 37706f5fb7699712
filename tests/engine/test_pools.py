"""Tenants with workers of their own: only their pool takes their directives, and takes nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.buses.service_bus.administration import excluding, pools_of, taking
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.app.provisioning import subscriptions
from lucius.app.services import runners_of
from lucius.app.settings import load_settings
from lucius.core.errors import RequestError
from lucius.dev.standins.service_bus import StandIn
from lucius.platform import Output, Service, Task
from lucius.ports.bus import Message
from tests.api.live import live
from tests.wiring import gateway_on

TENANTS = {
    "acme": {"pools": {"ocr": "gold"}},
    "brand": {"pools": {"ocr": "shared"}},
    "corp": {"pools": {"ocr": "shared"}},
}
TOPIC = "global-bus-p0"


def protocols(folder: Path, tenants: Mapping[str, Any] = TENANTS) -> str:
    path = folder / "protocols.yaml"
    content = {
        "step_types": {"OCR": {"service": "ocr"}, "SIS": {"service": "sis"}},
        "protocols": [{"request_type": "OCR", "protocol_id": "ocr_v1", "steps": ["OCR"]}],
        "tenants": tenants,
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


class Indiscriminate(MemoryBus):
    """As a broker that cannot choose by tenant."""

    @property
    def by_tenant(self) -> bool:
        return False


class World:
    def __init__(self, folder: Path, bus: MemoryBus) -> None:
        self.bus = bus
        self.config = FileConfig([Path(protocols(folder))])
        self.gateway = gateway_on(bus, self.config)

    async def put(self, tenant_id: str, pool: str | None = None) -> None:
        await self.gateway.prepare()
        named = {"pool": pool} if pool is not None else {}
        properties = {"step_type": "OCR", "tenant_id": tenant_id, **named}
        await self.bus.publish(TOPIC, [Message(f"of-{tenant_id}", {"of": tenant_id}, properties)])

    async def pull(self, *tenants: str) -> list[str]:
        """What a worker that is bound to these tenants gets; one that is bound to none, if none."""
        bound = frozenset(tenants) if tenants else None
        found = await self.gateway.pull("ocr", 10, 0, bound, _never)
        return sorted(body["of"] for body in found)


async def _never() -> None:
    raise AssertionError("nobody waits here")


@pytest.mark.parametrize("bus", [Indiscriminate, MemoryBus])
async def test_a_pool_takes_what_is_its_own_and_nobody_else_does(
    tmp_path: Path, bus: type[MemoryBus]
) -> None:
    world = World(tmp_path, bus())
    for tenant, pool in (("acme", "gold"), ("brand", "shared"), ("corp", "shared"), ("x", None)):
        await world.put(tenant, pool)
    assert await world.pull() == ["x"], "workers that all tenants share"
    assert await world.pull("acme") == ["acme"]
    assert await world.pull("brand", "corp") == ["brand", "corp"]


async def test_a_worker_that_would_get_what_is_not_its_own_is_refused_with_the_setting(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, Indiscriminate())
    for tenants, said in (
        (("x",), r"x.*tenants\.TENANT\.pools\.ocr"),
        (("acme", "x"), "bound to x"),
        (("brand",), "serves 1 tenants"),
    ):
        with pytest.raises(RequestError, match=said) as refused:
            await world.pull(*tenants)
        assert (refused.value.code, refused.value.status) == ("TENANT_WITHOUT_POOL", 403)


async def test_a_job_keeps_the_pools_that_its_tenant_had_when_it_came(tmp_path: Path) -> None:
    async with live(tmp_path / "data", protocols=protocols(tmp_path)) as lucius:
        for tenant, pool in (("acme", "gold"), ("x", None)):
            job = await lucius.runtime.engine.job(await lucius.accepted(tenant_id=tenant))
            assert job is not None
            assert job.plan.steps[0].pool == pool
        (common,) = await lucius.pull()
        assert (common["tenant_id"], "pool" in common) == ("x", False)


class Scribe(Service):
    name = "ocr"
    step_types = ("OCR",)

    async def execute(self, task: Task) -> Output | None:
        await task.stage("output.txt", "text")
        return None


@pytest.mark.parametrize(("pool", "takes"), [(None, "x"), ("gold", "acme")])
async def test_a_service_of_a_pool_serves_that_pool_alone(
    tmp_path: Path, pool: str | None, takes: str
) -> None:
    world = World(tmp_path, MemoryBus())
    (runner,) = runners_of(
        Scribe(), world.bus, MemoryWorkspace(), topology="shared", slots=1, pool=pool
    )
    await runner.start()
    try:
        other = "x" if takes == "acme" else "acme"
        await world.put(other, "gold" if other == "acme" else None)
        assert await world.pull(*(["acme"] if other == "acme" else [])) == [other]
    finally:
        await runner.stop()


def test_what_is_provisioned_names_pools_and_leaves_their_directives_to_them(
    tmp_path: Path,
) -> None:
    catalog = FileConfig([Path(protocols(tmp_path))]).catalog()
    made = {s.name: taking(s.filters) for s in subscriptions(catalog, "shared") if s.topic == TOPIC}
    assert made["ocr"] == "pool IS NULL AND step_type IN ('OCR')"
    assert made["ocr-pool-gold"] == "pool IN ('gold') AND step_type IN ('OCR')"
    assert [pools_of(rule) for rule in (made["ocr"], made["ocr-pool-gold"])] == [[], ["gold"]]
    rule = excluding(["OCR"], ["gold"])
    assert rule == "step_type IS NULL OR step_type NOT IN ('OCR') OR pool NOT IN ('gold')"
    assert excluding(["OCR"], []).endswith(" OR pool IS NOT NULL")


@pytest.mark.slow
async def test_lucius_bus_provision_makes_pools_and_what_has_no_pool_reaches_the_catch_all(
    tmp_path: Path,
) -> None:
    from lucius.app.adapters import open_bus
    from lucius.app.provisioning import provision_bus
    from tests.bus_looks import backlog

    async with StandIn() as stand_in:
        settings = load_settings(
            {
                "LUCIUS_BUS_BACKEND": "servicebus",
                "LUCIUS_SERVICEBUS_CONNECTION": stand_in.connection_string,
                "LUCIUS_PROTOCOLS": protocols(tmp_path, {"acme": TENANTS["acme"]}),
                "LUCIUS_BUS_PROVISION": "auto",  # so that the bus can be asked what waits there
            }
        )
        await provision_bus(settings)
        assert await provision_bus(settings) == []
        bus = open_bus(settings)
        try:
            for pool in ("gold", "tin"):
                properties = {"step_type": "OCR", "pool": pool}
                await bus.publish(TOPIC, [Message(pool, {"of": pool}, properties)])
            await bus.publish(TOPIC, [Message("plain", {"of": ""}, {"step_type": "OCR"})])
            names = ("ocr", "ocr-pool-gold", "lucius-unclaimed")
            assert [await backlog(bus, name, [TOPIC]) for name in names] == [1, 1, 1]
        finally:
            await bus.close()
