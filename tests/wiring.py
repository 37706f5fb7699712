"""Engine, gateway and runtime for tests of one part of them: what a test does not name is plain or absent."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from lucius.app.engine import Outbox
from lucius.app.engine import outbox as wired
from lucius.app.runtime import Runtime
from lucius.app.settings import Settings
from lucius.core.job import Job
from lucius.core.routing import TOPOLOGIES
from lucius.engine.admission.ingress import Ingress
from lucius.engine.gateway import Backlog, BusGateway
from lucius.engine.loop import OwedEffects
from lucius.engine.ownership import EMBEDDED, LostServices
from lucius.ports.bus import BoundTenants, Bus
from lucius.ports.config import ConfigSource
from lucius.ports.lanes import ALL_LANES
from lucius.ports.ledger import Ledger, Limits


class NoneHeldBack:
    """Nobody pauses a service."""

    def __contains__(self, service: object) -> bool:
        return False

    async def went_on(self) -> None:
        await asyncio.Future()


class NoBacklog:
    """For a gateway without an engine: nothing is held, so nothing is released for a pull."""

    def began(self, service: str, tenants: BoundTenants) -> None: ...

    def ended(self, service: str, tenants: BoundTenants, *, spare: bool) -> None: ...

    async def release(self, service: str, room: int, tenants: BoundTenants) -> int:
        return 0

    def handed_out(self, lease_id: str, seconds: float) -> None: ...


async def undelivered(job: Job, owed_id: str, url: str) -> bool:
    """No client takes its webhook: it is tried again later."""
    return False


def outbox(
    ledger: Ledger, bus: Bus, ingress: Ingress, *, now: Callable[[], datetime], **named: Any
) -> Outbox:
    """Of all lanes, without limits, tokens or guard, but for what is `named`.

    `home` and `alive`: how worker ids of services begin that ever lived in its process, and that live now.
    """
    alive = named.pop("alive", EMBEDDED)
    plain: dict[str, Any] = {
        "limits": lambda tenant_id: Limits(),
        "lanes": ALL_LANES,
        "topologies": TOPOLOGIES,
        "listeners": (),
        "owed": OwedEffects(),
        "cache_bytes": 2**28,
        "look": timedelta(seconds=30),
        "decorate": lambda body: body,
        "tokens": lambda *attempt: (),
        "notify": undelivered,
        "guard": lambda body, job_id, received: None,
        "lost": LostServices(named.pop("home", EMBEDDED), alive),
        "here": alive,
        "workflows": None,
        "engine_name": None,
        "held_back": NoneHeldBack(),
        "observers": (),
    }
    return wired(ledger, bus, ingress, now=now, **{**plain, **named})


def gateway_on(bus: Bus, config: ConfigSource, backlog: Backlog | None = None) -> BusGateway:
    """On the topics of all topologies, in front of nothing that is held unless `backlog` says so."""
    return BusGateway(
        bus, config, topology="shared", topologies=TOPOLOGIES, backlog=backlog or NoBacklog()
    )


def runtime_of(settings: Settings, **named: Any) -> Runtime:
    """On the outbox engine alone, without services of its own, and with all lanes unless told otherwise."""
    plain: dict[str, Any] = {
        "services": (),
        "apart": None,
        "reconciles": True,
        "lanes": ALL_LANES,
        "engine_name": None,
        "workflows": None,
        "remote_invoker": None,
        "worker": None,
        "in_force": lambda: settings,
    }
    return Runtime(settings=settings, **{**plain, **named})
