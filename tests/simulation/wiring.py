"""How today's LUCIUS is put together in a simulated process. A change of the engine's wiring changes this.

The rest of the simulator knows the ports, the kit and what is here: `Server`, `Services`, `seeded`.
"""

import asyncio
import os
import random as random_module
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any, Final, Protocol, cast
from unittest.mock import patch

from lucius.adapters.buses.linked import LinkedBus, ServicesLink
from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.catalogs import Document, build_catalog
from lucius.app.engine import outbox
from lucius.app.services import ended_leases
from lucius.app.services_process import CANCEL, DRAINED, END_LEASE
from lucius.core import ids
from lucius.core.effects import Committed
from lucius.core.errors import LuciusError
from lucius.core.job import Job
from lucius.core.references import EMBEDDED_SCHEMES, ReferencePolicy
from lucius.engine.admission.ingress import Ingress, IngressPolicy
from lucius.engine.clock import SteadyClock
from lucius.engine.loop import OwedEffects
from lucius.engine.ownership import EMBEDDED, LeasedLanes, LostServices
from lucius.engine.replies import ReplyConsumer
from lucius.engine.windows import Key
from lucius.platform import ServiceRunner
from lucius.ports.bus import Bus, directive_filters
from lucius.ports.config import Catalog
from lucius.ports.engine import Engine
from lucius.ports.lanes import ALL_LANES, Lanes
from lucius.ports.leases import LeaseStore
from lucius.ports.ledger import Ledger
from lucius.ports.workspace import Workspace
from tests.simulation.loop import Process, SimLoop
from tests.simulation.services import ACK_TIMEOUT, LEASE, KitService, RawService

LOOK: Final = timedelta(seconds=30)
SHARED_LOOK: Final = timedelta(seconds=1)
"""How often due jobs are looked for: by the one owner of all lanes, and by owners that share them."""
CACHE_BYTES: Final = 2**28
GRACE: Final = timedelta(seconds=2)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Every id and every draw of the program under test follows from the seed."""
    source = Random(f"ids {seed}")
    ids._random.forget()
    random_module.seed(seed)
    with ExitStack() as patches:
        patches.enter_context(patch.object(ids, "urandom", source.randbytes))
        patches.enter_context(patch.object(os, "urandom", source.randbytes))
        secrets = Random(f"secrets {seed}")
        patches.enter_context(patch.object(random_module, "_urandom", secrets.randbytes))
        yield
    ids._random.forget()


# -- configuration ---------------------------------------------------------------------------


class SimConfig:
    """Some variants of the protocols and limits. `variant` is the one in force."""

    pause = timedelta(days=1)

    variant = 0

    def catalog(self) -> Catalog:
        return _catalogs()[self.variant]

    def fault(self) -> str | None:
        return None

    async def refresh(self) -> bool:
        return False

    async def close(self) -> None: ...


@cache
def _catalogs() -> tuple[Catalog, ...]:
    swapped: dict[str, Any] = {
        "protocols": [
            {"request_type": "A->B", "protocol_id": "ab2", "steps": ["BETA", "ALPHA"]},
            *(each for each in _protocols() if each["request_type"] != "A->B"),
        ],
        "tenants": {"acme": {"max_inflight": 3}, "birch": {"max_inflight": 1}},
    }
    plain: dict[str, Any] = {"protocols": _protocols()}
    bodies = (
        {"step_types": _step_types(3), **plain},
        {"step_types": _step_types(2), **swapped},
        {"step_types": _step_types(4), **plain, "tenants": {"coral": {"max_inflight": 2}}},
    )
    return tuple(build_catalog([Document("simulation.yaml", body)]) for body in bodies)


def _step_types(most: int) -> dict[str, Any]:
    return {
        name.upper(): {
            "service": name,
            "max_attempts": most,
            "ack_timeout_seconds": ACK_TIMEOUT,
            "lease_seconds": LEASE,
            "publish_backoff_seconds": [1, 3],
            "ack_backoff_seconds": [2, 5],
            "execution_backoff_seconds": [1, 4],
        }
        for name in ("alpha", "beta", "gamma")
    }


def _protocols() -> list[dict[str, Any]]:
    again = {"type": "ALPHA", "id": "again"}
    steps: dict[str, list[Any]] = {
        "A": ["ALPHA"],
        "G": ["GAMMA"],
        "A->B": ["ALPHA", "BETA"],
        "A->G->B": ["ALPHA", "GAMMA", "BETA"],
        "A->B->G->A": [{"type": "ALPHA", "id": "alpha"}, "BETA", "GAMMA", again],
        "FORK": [_staged("ALPHA", 1), _staged("GAMMA", 1), _staged("BETA", 2)],
        "WIDE": [_staged("ALPHA", 1), _staged("BETA", 1), _staged("GAMMA", 1)],
    }
    return [
        {"request_type": name, "protocol_id": f"p{number}", "steps": each}
        for number, (name, each) in enumerate(steps.items())
    ]


def _staged(step_type: str, stage: int) -> dict[str, Any]:
    return {"type": step_type, "stage": stage}


# -- the server ------------------------------------------------------------------------------


class HeldBack(Protocol):
    def __contains__(self, service: object) -> bool: ...

    async def went_on(self) -> None: ...


Notify = Callable[[Job, str, str], Any]


class Server:
    """One process of the orchestrator: the engine, and what runs by itself on its lanes.

    `leases`: it shares the lanes with others. `owns`: without it, it saves what callers ask, and others
    deliver. `services`: those that run in the same process.
    """

    def __init__(
        self,
        process: Process,
        loop: SimLoop,
        ledger: Ledger,
        bus: Bus,
        config: SimConfig,
        *,
        wall: Callable[[], datetime],
        leases: LeaseStore | None,
        owns: bool,
        notify: Notify,
        held_back: HeldBack,
        cache_bytes: int,
    ) -> None:
        self.process = process
        self.home = f"{EMBEDDED}{process.name}/"
        self.bus = bus
        self.ready = False
        self.leaving = False
        self.failure: BaseException | None = None
        self.services: Services | None = None
        self._loop = loop
        self._ledger = ledger
        self._owns = owns
        self._lost = LostServices(EMBEDDED, self.home)
        self._lanes: Lanes = ALL_LANES
        if leases is not None:
            self._lanes = LeasedLanes(leases, process.name, clock=loop.time, takes=owns)
        policy = IngressPolicy(references=ReferencePolicy(schemes=(*EMBEDDED_SCHEMES, "mem")))
        ingress = Ingress(config, policy)
        self._parts = outbox(
            ledger,
            bus,
            ingress,
            now=SteadyClock(wall, loop.time).now,
            limits=ingress.limits,
            lanes=self._lanes,
            topologies=("shared",),
            listeners=(self._listen,),
            owed=OwedEffects(),
            cache_bytes=cache_bytes,
            look=LOOK if leases is None else SHARED_LOOK,
            decorate=lambda body: body,
            tokens=lambda *attempt: (),
            notify=notify,
            guard=lambda body, job_id, received: None,
            lost=self._lost,
            here=self.home,
            workflows=None,
            engine_name=None,
            held_back=held_back,
            observers=(),
        )
        self._work: list[asyncio.Task[Any]] = []

    @property
    def engine(self) -> Engine:
        return cast(Engine, self._parts.engine)

    @property
    def replies(self) -> ReplyConsumer:
        return self._parts.replies

    async def start(self) -> None:
        """As the composition root does it: services first, then what is due."""
        if self.services is not None and self.services.process is self.process:
            await self.services.start()
        if self._owns:
            await self._parts.reconciler.prepare()
            self._begin(self._parts.reconciler.run())
        else:
            self._begin(self._parts.nudges.run())
            self._begin(self._parts.notices.run())
        self.ready = True

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._work.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled():
            self.failure = task.exception() or AssertionError("the reconciler has ended")

    def services_live_as(self, worker_ids: str) -> None:
        """The process of the services begins: so begin the ids of its workers."""
        self._lost.alive = worker_ids

    def services_died(self, next_worker_ids: str) -> None:
        """The process of the services has died, and another one takes its place."""
        self._lost.died(next_worker_ids)

    async def backlog(self) -> Sequence[dict[str, Any]]:
        return [dict(row) for row in await self._parts.engine.backlog()]

    def counted(self) -> Mapping[Key, tuple[int, int]]:
        """What this process counts as out and as in progress, on whatever lane."""
        return self._parts.windows.snapshot()

    async def stop(self) -> None:
        """End in order, as after SIGTERM."""
        self.ready = False
        self._parts.engine.end_waits()
        self._parts.dispatcher.close()
        if self.services is not None and self.services.process is self.process:
            await self.services.stop()
        if self._owns:
            await self._parts.replies.drained()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        with suppress(LuciusError):
            await self._lanes.give_back()
        await self._parts.tasks.close()
        with suppress(LuciusError):
            await self._ledger.close()

    def _listen(self, commit: Committed) -> None:
        """Services of this installation hear of ended leases and of cancellations without the bus."""
        before, job, services = commit.before, commit.job, self.services
        if before is None or services is None or not services.process.alive:
            return
        for lease_id in ended_leases(commit):
            services.order(END_LEASE, lease_id)
        if job.cancel_requested_at is not None and before.state != job.state:
            services.order(CANCEL, job.job_id)


# -- the services ----------------------------------------------------------------------------


class Services:
    """The services of one process. `worker_ids`: what the ids of its workers begin with.

    `link`: the server's end of it, where they have a process beside the server's.
    """

    link: ServicesLink | None = None
    drained: "asyncio.Future[None]"
    """Those beside a server have said that they are."""

    def __init__(
        self,
        process: Process,
        bus: Bus,
        workspace: Workspace,
        *,
        slots: int,
        worker_ids: str,
        kit: Sequence[KitService],
        raw: Callable[[Bus, str, int], RawService],
        clock: Callable[[], datetime],
    ) -> None:
        self.process = process
        self.worker_ids = worker_ids
        self.ready = False
        self._bus = bus
        self._runners = [
            ServiceRunner(
                service,
                bus,
                workspace,
                slots=slots,
                worker_id=f"{worker_ids}{service.name}",
                filters=directive_filters(service.step_types),
                grace=GRACE,
                clock=clock,
            )
            for service in kit
        ]
        self._raw = raw(bus, f"{worker_ids}gamma", slots)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        for runner in self._runners:
            await runner.start()
        self._task = asyncio.create_task(self._raw.run())
        self.ready = True

    async def stop(self) -> None:
        self.ready = False
        if self._task is not None:
            self._task.cancel()
        await asyncio.gather(*(runner.stop() for runner in self._runners))
        if isinstance(self._bus, LinkedBus):
            self._bus.report(DRAINED)

    def order(self, word: str, value: str) -> None:
        """Of the server that has started them."""
        if self.link is not None:
            self.link.order(word, value)
        else:
            self.obey(word, value)

    def obey(self, word: str, value: str) -> None:
        for runner in self._runners:
            if word == END_LEASE:
                runner.end_lease(value)
            else:
                runner.request_cancel(value)


class Broker(MemoryBus):
    """A bus that outlives every process of LUCIUS."""

    volatile = False
