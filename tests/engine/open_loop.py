"""An open-loop load in virtual time: jobs come whether or not anybody has a free slot for them.

`python -m tests.engine.open_loop` prints what each scene costs: attempts that ended for want of an ACK, the
rate beside the capacity of the workers, how long tenants wait, and directives out that nobody has a slot for.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, Final

from lucius.buses.memory import MemoryBus
from lucius.core.job import Job
from lucius.core.routing import directive_topics
from lucius.core.states import AbortReason
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.bus import Delivery, Message, Subscription, directive_filters
from tests.engine.apart import Apart, Broker
from tests.engine.pullers import Puller, gateway_of
from tests.engine.world import InOrder, World
from tests.virtual import VirtualLoop, run_virtually

OCR: Final[dict[str, Any]] = {"request_type": "OCR", "payload": {}}
QUIET: Final = tuple(f"quiet-{n}" for n in range(10))
FLOODER: Final = "flooder"


class Far(InOrder):
    """A broker that takes its time for every message."""

    seconds = 0.05
    volatile = False

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        await asyncio.sleep(self.seconds)
        await super().publish(topic, messages)


class FarLedger(MemoryLedger):
    """Each batch of saves is a round trip."""

    seconds = 0.1

    async def save_all(self, writes: Any, answered: Any) -> None:
        await asyncio.sleep(self.seconds)
        await super().save_all(writes, answered)


@dataclass
class Worker:
    """Takes directives from the bus into free slots. `announces`: its ACKs say how many it has."""

    bus: MemoryBus
    name: str
    slots: int
    seconds: float
    random: Random
    announces: bool = True
    free: int = 0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        self.free = self.slots
        topics, filters = directive_topics("shared"), directive_filters(("OCR",))
        await self.bus.ensure([Subscription(topic, "ocr", filters) for topic in topics])
        try:
            while True:
                while not self.free:
                    self._freed.clear()
                    await self._freed.wait()
                wait = timedelta(seconds=20)
                for found in await self.bus.receive("ocr", topics, self.free, wait):
                    self.free -= 1
                    self._tasks.add(task := asyncio.create_task(self._work(found)))
                    task.add_done_callback(self._tasks.discard)
        finally:
            self.free = 0
            for task in self._tasks:
                task.cancel()

    async def _work(self, delivery: Delivery) -> None:
        body = delivery.message.body
        self.began.set()
        said = {"slots": self.slots, "version": "1"} if self.announces else {}
        await self._say(body, "ACK", **said)
        await self.bus.complete(delivery)
        left = self.seconds * self.random.uniform(0.5, 1.5)
        while left > 60:
            await asyncio.sleep(60)
            left -= 60
            await self._say(body, "HEARTBEAT")
        await asyncio.sleep(left)
        self.free += 1
        self._freed.set()
        await self._say(body, "RESULT", status="SUCCEEDED", output_ref="mem://out")

    async def _say(self, directive: Mapping[str, Any], kind: str, **fields: Any) -> None:
        names = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
        body = {**{name: directive[name] for name in names}, "type": kind, **fields}
        if self.announces:
            body["worker_id"] = self.name
        name = f"{directive['lease_id']}:{kind}:{next(_NUMBERS)}"
        message = Message(name, body, {"type": kind, "jobId": body["jobId"]})
        await self.bus.publish(directive["reply_topic"], [message])


_NUMBERS = count()


@dataclass
class Scene:
    """What comes, and who is there. `rates`: jobs a second by tenant."""

    name: str
    seconds: float
    """A step takes so long on average."""
    slots: int
    rates: Mapping[str, float]
    lasts: float
    workers: int = 1
    announces: bool = True
    mode: str = "DEFAULT"
    owners: int = 0
    """Processes that share the lanes; 0: one process with all of them."""
    lives: float = 0.0
    """Seconds after which a worker dies on average, with all that it has; it is away for a third of that."""
    idle: int = 0
    """Workers that announce their slots once and are gone."""
    pullers: int = 0
    room: int = 5
    pause: float = 0.0
    """Seconds between two pulls of a worker."""
    far: bool = False
    turns: bool = False
    """The bus takes turns over tenants."""

    @property
    def capacity(self) -> float:
        return self.slots * max(self.workers, self.pullers) / self.seconds


@dataclass
class Told:
    """What a scene has cost."""

    jobs: int = 0
    timeouts: int = 0
    failed: int = 0
    done: int = 0
    rate: float = 0.0
    waits: dict[str, list[float]] = field(default_factory=dict)
    without_slot: list[int] = field(default_factory=list)

    def wait(self, tenants: Sequence[str], part: float) -> float:
        found = sorted(w for tenant in tenants for w in self.waits.get(tenant, ()))
        return found[min(len(found) - 1, int(len(found) * part))] if found else 0.0


class Run:
    """One scene, from its first job to the last."""

    def __init__(self, scene: Scene, loop: VirtualLoop, seed: int) -> None:
        self.scene, self.loop, self.random = scene, loop, Random(seed)
        self.workers: list[Worker] = []
        self.pullers: list[Puller] = []
        self.ids: list[str] = []
        self.told = Told()
        self.submit: Callable[..., Awaitable[str]]
        self._tasks: list[asyncio.Task[None]] = []

    async def play(self) -> Told:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            await self._staff()
            self._begin(self._sample())
            arrivals = [
                asyncio.create_task(self._arrive(tenant, rate))
                for tenant, rate in self.scene.rates.items()
            ]
            await asyncio.sleep(self.scene.lasts)
            await asyncio.gather(*arrivals)
            await self._count()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return self.told

    async def _open(self, stack: AsyncExitStack) -> None:
        scene = self.scene
        ledger = FarLedger() if scene.far else MemoryLedger()
        if scene.owners:
            self.bus: MemoryBus = Far() if scene.far else Broker()
            apart = await stack.enter_async_context(
                Apart(self.loop, ledger=ledger, bus=self.bus).running()
            )
            for number in range(scene.owners):
                await apart.owner(f"owner-{number}")
            await asyncio.sleep(40)
            asking = await apart.orchestrator("asks")
            self.parts = [p.parts for p in apart.processes]
            self.submit = lambda **fields: apart.submit(asking, **fields)
        else:
            self.bus = Far() if scene.far else MemoryBus() if scene.turns else InOrder()
            world = await stack.enter_async_context(
                World(self.loop, ledger=ledger, bus=self.bus).running()
            )
            self.world, self.parts = world, [world.outbox]
            self.submit = world.submit

    def _begin(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _staff(self) -> None:
        scene = self.scene
        for number in range(scene.workers):
            self._begin(self._employ(f"worker-{number}", scene.seconds))
        for number in range(scene.idle):
            self._begin(self._leave_early(f"gone-{number}"))
        if scene.pullers:
            gateway = gateway_of(self.world)
            await gateway.prepare()
            for number in range(scene.pullers):
                wait = 0 if scene.pause else 20
                puller = Puller(self.world, gateway, None, scene.room, scene.seconds, wait=wait)
                self.pullers.append(puller)
                self._begin(self._pull(puller, number))

    async def _pull(self, puller: Puller, number: int) -> None:
        await asyncio.sleep(self.scene.pause * number / self.scene.pullers)
        while True:
            await puller.once()
            await asyncio.sleep(self.scene.pause)

    async def _employ(self, name: str, seconds: float) -> None:
        """A worker, and after its death the next one."""
        for life in count():
            lives = self.random.expovariate(1 / self.scene.lives) if self.scene.lives else 1e9
            made = (self.bus, f"{name}-{life}", self.scene.slots, seconds, self.random)
            self.workers.append(worker := Worker(*made, announces=self.scene.announces))
            task = asyncio.create_task(worker.run())
            try:
                await asyncio.sleep(lives)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                self.workers.remove(worker)
            await asyncio.sleep(self.scene.lives / 3)

    async def _leave_early(self, name: str) -> None:
        """It takes one directive, says how many slots it has, answers, and is never seen again."""
        made = (self.bus, name, self.scene.slots, 1.0, self.random)
        self.workers.append(worker := Worker(*made, announces=self.scene.announces))
        task = asyncio.create_task(worker.run())
        await worker.began.wait()
        worker.free = 0
        await asyncio.sleep(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.workers.remove(worker)

    async def _arrive(self, tenant: str, rate: float) -> None:
        until, number, random = self.loop.time() + self.scene.lasts, 0, Random(tenant)
        while True:
            await asyncio.sleep(random.expovariate(rate))
            if self.loop.time() > until:
                return
            number += 1
            self._begin(self._submit(tenant, number))

    async def _submit(self, tenant: str, number: int) -> None:
        fields = {**OCR, "mode": self.scene.mode, "doc_id": f"{tenant}-{number}"}
        self.ids.append(await self.submit(tenant_id=tenant, number=number, **fields))

    async def _sample(self) -> None:
        """Directives that wait while nobody has a slot for them."""
        every = max(self.scene.lasts / 400, 0.01)
        while True:
            await asyncio.sleep(every)
            out = sum(
                released
                for parts in self.parts
                for released, *_ in parts.windows.snapshot().values()
            )
            free = sum(worker.free for worker in self.workers)
            self.told.without_slot.append(max(0, out - free))

    async def _count(self) -> None:
        """As the jobs stand when no more come: what is done by then counts for the rate."""
        told, began = self.told, min(j.plan.accepted_at for j in [*await self._jobs()])
        told.jobs = len(self.ids)
        for job in await self._jobs():
            told.done += job.state.value == "SUCCEEDED"
            told.failed += job.state.value == "FAILED_FINAL"
            runs = [run for step in job.steps for run in step.executions]
            told.timeouts += sum(run.reason is AbortReason.ACK_TIMEOUT for run in runs)
            first = next((run.started_at for run in runs if run.started_at is not None), None)
            waited = (first or self.loop.now()) - job.plan.accepted_at
            told.waits.setdefault(job.tenant_id, []).append(waited.total_seconds())
        told.rate = told.done / (self.loop.now() - began).total_seconds()

    async def _jobs(self) -> list[Job]:
        engine = self.parts[-1].engine
        return [job for job_id in self.ids if (job := await engine.job(job_id)) is not None]


def flood(total: float, part: float = 0.9) -> dict[str, float]:
    """One tenant sends most of it, and ten send the rest."""
    return {FLOODER: total * part, **{name: total * (1 - part) / len(QUIET) for name in QUIET}}


SCENES: Final = (
    Scene("1 ms, below", 0.001, 8, flood(400), 10),
    Scene("1 ms, above", 0.001, 1, flood(1500), 4),
    Scene("1 ms, far broker and ledger", 0.001, 64, flood(300), 20, far=True),
    Scene("1 ms, far, bare ACKs", 0.001, 64, flood(300), 20, far=True, announces=False),
    Scene("1 s, below", 1, 20, flood(17), 200),
    Scene("1 s, above", 1, 20, flood(30), 200),
    Scene("1 s, above, in turns", 1, 20, flood(30), 200, turns=True),
    Scene("1 s, above, bare ACKs", 1, 20, flood(30), 200, announces=False),
    Scene("1 s, workers come and go", 1, 4, flood(20), 300, workers=5, lives=60),
    Scene("1 s, pulled by four, above", 1, 5, flood(25), 200, workers=0, pullers=4),
    Scene("5 min, below", 300, 10, flood(0.027), 10_000),
    Scene("5 min, above", 300, 10, flood(0.06), 8_000),
    Scene("5 min, above, burst mode", 300, 10, flood(0.06), 8_000, mode="BURST"),
    Scene("5 min, above, bare ACKs", 300, 10, flood(0.06), 8_000, announces=False),
    Scene("5 min, above, three owners", 300, 10, flood(0.06), 8_000, mode="BURST", owners=3),
    Scene("5 min, two workers gone", 300, 5, flood(0.06), 8_000, workers=2, idle=2),
    Scene("5 min, workers come and go", 300, 5, flood(0.05), 8_000, workers=4, lives=2_000),
    Scene("nobody serves it", 1, 1, flood(2), 600, workers=0),
    Scene(
        "5 min, a pull every 4 min",
        5,
        1,
        flood(0.05),
        8_000,
        workers=0,
        pullers=1,
        room=15,
        pause=240,
    ),
)


def play(scene: Scene, seed: int = 1) -> Told:
    return run_virtually(lambda loop: Run(scene, loop, seed).play())


def line(scene: Scene, told: Told) -> str:
    idle = told.without_slot
    cells = (
        scene.name,
        f"{told.jobs}",
        f"{told.timeouts}",
        f"{told.failed}",
        f"{told.rate:.3g}",
        f"{min(scene.capacity, sum(scene.rates.values())):.3g}",
        f"{told.wait([FLOODER], 0.5):.3g}",
        f"{told.wait(QUIET, 0.5):.3g}",
        f"{told.wait(QUIET, 0.99):.3g}",
        f"{sum(idle) / len(idle):.1f}",
        f"{max(idle)}",
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    wanted = sys.argv[1:]
    for scene in SCENES:
        if not wanted or any(word in scene.name for word in wanted):
            print(line(scene, play(scene)), flush=True)


if __name__ == "__main__":
    main()
