"""One run: the processes of a plan, its clients and its faults, until everything is quiet again."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from lucius.adapters.buses.linked import ServicesLink
from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.ledgers.memory import MemoryLeases, MemoryLedger
from lucius.core.errors import LedgerError, LuciusError, RequestError
from lucius.core.inputs import (
    CancelRequested,
    Dismissed,
    Input,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    Ticked,
)
from lucius.core.job import Job
from lucius.http.routes.bulk import order_matching, order_to_move, order_to_redrive
from lucius.ports.bus import Bus
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobQuery, Ledger
from tests.simulation.disk import Disk
from tests.simulation.faults import (
    EmbeddedStore,
    Faults,
    RemoteStore,
    SimBus,
    SimWorkspace,
    settle,
)
from tests.simulation.link import WatchedLink, connect
from tests.simulation.loop import Process, SimLoop, context_of
from tests.simulation.observer import Observer, Trace, short
from tests.simulation.plan import AIMED_WINDOWS, PAUSES, WINDOWS, Action, Plan
from tests.simulation.services import KitService, RawService
from tests.simulation.wiring import CACHE_BYTES, Broker, Server, Services, SimConfig

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
BEGINNING: Final = 0.5
"""Virtual seconds before the first action: by then every process is up."""
PATIENCE: Final = 3000.0
"""Virtual seconds after the last fault in which every job must have ended."""
ORDERS: Final[dict[str, Input]] = {
    "cancel": CancelRequested(),
    "cancel_now": CancelRequested(immediate=True),
    "pause": PauseRequested(),
    "resume": ResumeRequested(),
    "retry_now": RetryRequested(),
    "publish_now": Ticked(publish_now=True),
    "dismiss": Dismissed(),
}


class DiedError(Exception):
    """The process that was asked is gone: nobody knows whether it was done."""


class Holding:
    """Services that someone has paused."""

    def __init__(self) -> None:
        self.services: Counter[str] = Counter()
        self._waiting: list[asyncio.Future[None]] = []

    def __contains__(self, service: object) -> bool:
        return self.services[str(service)] > 0

    async def went_on(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def go_on(self, service: str) -> None:
        self.services[service] -= 1
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


@dataclass
class Request:
    """A submission of the plan, and what became of it. `job_ids`: what its callers were told."""

    envelope: dict[str, Any]
    key: str | None
    job_ids: list[str] = field(default_factory=list)


class World:
    """Everything of one run. `calm`: nothing goes wrong any more."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.trace = Trace(loop)
        self.faults = Faults(loop, Random(f"faults {plan.seed}"))
        self.observer = Observer(
            self.trace, self.now, punctual=punctual(plan), attentive=attentive(plan)
        )
        self.done: Counter[str] = Counter()
        self.requests: dict[int, Request] = {}
        self.servers: dict[int, Server] = {}
        self.services: Services | None = None
        self.notified: Counter[str] = Counter()
        self.workspace = SimWorkspace(self.faults)
        self.config = SimConfig()
        self._offset = timedelta()
        self._random = Random(f"clients {plan.seed}")
        self._clients = loop.process("clients")
        self._broker = loop.process("broker")
        self._folder = (
            Path(tempfile.mkdtemp(prefix="lucius-sim-")) if plan.setup.ledger == "sqlite" else None
        )
        self._disk = Disk(self._folder / "disk") if self._folder is not None else None
        self._stored = MemoryLedger()
        self._leases = MemoryLeases()
        self._bus: MemoryBus = Broker()
        self._held = Holding()
        self._lives: Counter[str] = Counter()
        self._away: set[int] = set()
        """Servers that do not come back."""
        self._busy = 0
        """Actions and clients that are still under way."""

    def close(self) -> None:
        if self._disk is not None and self._folder is not None:
            self._disk.end()
            shutil.rmtree(self._folder)

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.time()) + self._offset

    @property
    def calm(self) -> bool:
        return self.loop.time() > BEGINNING + self.plan.calm_at

    # -- processes ---------------------------------------------------------------------------

    def _life(self, name: str) -> Process:
        self._lives[name] += 1
        return self.loop.process(f"{name}.{self._lives[name]}")

    def start(self) -> None:
        for number in range(self.plan.setup.servers):
            self.start_server(number)
        if self.plan.setup.api:
            self.start_server(self.plan.setup.servers)
        if self.plan.setup.bus == "durable":
            self.start_services()
        for action in self.plan.actions:
            self.loop.call_later(BEGINNING + action.at, self._act, action)

    def start_server(self, number: int) -> None:
        if number not in self.servers and number not in self._away:
            process = self._life(f"server{number}")
            self.loop.spawn(process, self._serve(number, process))

    async def _serve(self, number: int, process: Process) -> None:
        """Until the first one is up, a process that cannot start is started again, as a supervisor does."""
        setup = self.plan.setup
        if setup.bus == "volatile":
            self._bus = MemoryBus()
            broker = process
        else:
            broker = self._broker
        bus = self._sim_bus(broker)
        leases = RemoteStore(self._leases, self.loop, self.faults, self.observer, leases=True)
        server = Server(
            process,
            self.loop,
            await self._ledger(),
            bus,
            self.config,
            wall=self.now,
            leases=cast(Any, leases) if setup.servers > 1 else None,
            owns=number < setup.servers,
            notify=self._notify,
            held_back=self._held,
            cache_bytes=1 if setup.forgetful else CACHE_BYTES,
        )
        self.servers[number] = server
        process.on_death.append(lambda: self._server_died(number, server))
        process.on_death.append(partial(self.observer.worker_died, server.home))
        if setup.inside:
            server.services = self._made_services(process, bus, server)
        try:
            if setup.bus == "volatile" and not setup.inside:
                await self._started_services()
            await server.start()
        except LuciusError as error:
            self.trace.add(f"cannot start: {error}")
            self.loop.call_later(
                1.0, self.start_server, number, context=context_of(self.loop.world)
            )
            self.loop.kill(process)
            return
        self.trace.add("is up")

    async def _ledger(self) -> Ledger:
        if self._disk is None:
            return cast(Ledger, RemoteStore(self._stored, self.loop, self.faults, self.observer))
        opened = await self._disk.open()
        for job in (await opened.list(JobQuery(limit=1000))).jobs:
            self.observer.found(job)
        return cast(Ledger, EmbeddedStore(opened, self.faults, self.observer))

    def _server_died(self, number: int, server: Server) -> None:
        self.servers.pop(number, None)
        if self._disk is not None:
            self._disk.crash()
        if self.plan.setup.bus == "volatile" and self.services is not None:
            self.loop.kill(self.services.process)

    def start_services(self) -> None:
        server = self.servers.get(0)
        volatile = self.plan.setup.bus == "volatile"
        if (self.services is not None and self.services.process.alive) or (
            volatile and server is None
        ):
            return
        process = self._life("services")
        if volatile and server is not None:
            self.services = self._services_beside(process, server)
        else:
            self.services = self._made_services(process, self._sim_bus(self._broker), None)
        self.loop.spawn(process, self.services.start())

    def _services_beside(self, process: Process, server: Server) -> Services:
        """They have a link to the server that has started them, as those of `lucius up` have."""
        following = f"{server.home}{self._lives['services'] + 1}/"
        bus = WatchedLink(
            self.observer,
            lambda word, value: services.obey(word, value),
            partial(self.loop.kill, process),
        )
        services = self._made_services(process, bus, server)
        services.link = link = ServicesLink(
            self._bus,
            server.replies.came,
            server.replies.until_capacity,
            lambda word, value: settle(services.drained, None),
            partial(server.services_died, following),
        )
        services.drained = self.loop.create_future()
        server.services = services
        server.services_live_as(services.worker_ids)
        ends = (server.process, link.packets), (process, bus.packets)
        connect(self.loop, self.faults, *ends)
        process.on_death.append(partial(self._services_died, server, link))
        process.on_death.append(partial(self.observer.worker_died, services.worker_ids))
        return services

    async def _started_services(self) -> None:
        """The server waits for the services that it has started, unless they die over it."""
        self.start_services()
        for _ in range(100):
            if self.services is None or self.services.ready or not self.services.process.alive:
                return
            await asyncio.sleep(0.01)

    def _services_died(self, server: Server, link: ServicesLink) -> None:
        """The server sees that their process is gone, and reads what it has said."""
        if server.process.alive:
            self.loop.in_process(server.process, link.read_to_the_end)

    def _sim_bus(self, broker: Process) -> SimBus:
        return SimBus(self._bus, broker, self.loop, self.faults, self.observer)

    def _made_services(self, process: Process, bus: Bus, server: Server | None) -> Services:
        number = self._lives["services"]
        worker_ids = f"outside-{number}-" if server is None else f"{server.home}{number}/"
        kit = [
            KitService("alpha", "ALPHA", self.done, self.trace.add),
            KitService("beta", "BETA", self.done, self.trace.add),
        ]
        return Services(
            process,
            bus,
            self.workspace,
            slots=self.plan.setup.slots,
            worker_ids=worker_ids,
            kit=kit,
            raw=lambda bus, name, slots: RawService(bus, name, slots, self.done, self.trace.add),
            clock=self.now,
        )

    async def _notify(self, job: Job, owed_id: str, url: str) -> bool:
        await self.faults.away()
        if self.faults.hits("webhook.fail"):
            return False
        self.observer.answered(job.job_id, job.version, "a webhook")
        self.notified[job.job_id] += 1
        return True

    # -- actions -----------------------------------------------------------------------------

    def _act(self, action: Action) -> None:
        self.trace.add(f"ACTION {action.kind} {action.args}")
        self.done[f"action.{action.kind}"] += 1
        args = action.args
        if action.kind in (*WINDOWS, *AIMED_WINDOWS):
            self.faults.begin(action.kind, args["seconds"], args["chance"])
            return
        match action.kind:
            case "submit":
                self._client(self._submit(args))
            case "repeat":
                self._client(self._repeat(args))
            case "await_end":
                self._client(self._await_end(args["no"]))
            case "order":
                self._client(self._order(args["no"], args["order"]))
            case "bulk":
                self._client(self._bulk(args["order"], args["tenant"]))
            case "configure":
                self.config.variant = args["variant"]
            case "hold":
                self._held.services[args["service"]] += 1
                self.loop.call_later(args["seconds"], self._held.go_on, args["service"])
            case "clock":
                self._offset += timedelta(seconds=args["jump"])
            case _:
                self._harm(action.kind, args)

    def _harm(self, kind: str, args: dict[str, Any]) -> None:
        deed, _, whom = kind.partition("_")
        for process, again in self._victims(whom, args["which"]):
            match deed:
                case "kill":
                    process.dies_at = process.steps + args["steps"]
                    process.on_death.append(partial(self._comes_back, args, again))
                    self.loop.call_later(args["seconds"], self.loop.kill, process)
                case "stop":
                    self._stop(process, args, again)
                case "freeze":
                    self.loop.freeze(process, args["seconds"])

    def _comes_back(self, args: dict[str, Any], again: Callable[[], None]) -> None:
        """Unless it stays away. Then others own its lanes for good."""
        if args["back"] is None:
            self._away.add(args["which"])
        else:
            self.loop.call_later(args["back"], again, context=context_of(self.loop.world))

    def _victims(self, whom: str, which: int) -> list[tuple[Process, Callable[[], None]]]:
        found: list[tuple[Process, Callable[[], None]]] = []
        server, services = self.servers.get(which), self.services
        if whom in ("server", "both") and server is not None:
            found.append((server.process, lambda: self.start_server(which)))
        if whom in ("services", "both") and services is not None and services.process.alive:
            found.append((services.process, self.start_services))
        return found

    def _stop(self, process: Process, args: dict[str, Any], again: Callable[[], None]) -> None:
        for server in list(self.servers.values()):
            if server.process is process and server.ready:
                self.loop.spawn(process, self._stopped(server, args, again))
        services = self.services
        if services is not None and services.process is process:
            self.loop.spawn(process, self._ended(services, args, again))

    async def _stopped(
        self, server: Server, args: dict[str, Any], again: Callable[[], None]
    ) -> None:
        server.leaving = True
        apart = self.services if self.plan.setup.bus == "volatile" else None
        if apart is not None and apart.process.alive:
            if apart.link is not None:
                apart.link.read_to_the_end()
            self.loop.spawn(apart.process, apart.stop())
            apart.process.on_death.append(partial(settle, apart.drained, None))
            await apart.drained
        await server.stop()
        self.trace.add("has stopped")
        self._comes_back(args, again)
        self.loop.kill(server.process)

    async def _ended(
        self, services: Services, args: dict[str, Any], again: Callable[[], None]
    ) -> None:
        await services.stop()
        self._comes_back(args, again)
        self.loop.kill(services.process)

    # -- clients -----------------------------------------------------------------------------

    def _client(self, work: Any) -> None:
        self._busy += 1
        task = self.loop.spawn(self._clients, work)
        task.add_done_callback(self._client_ended)

    def _client_ended(self, task: "asyncio.Task[Any]") -> None:
        self._busy -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self.observer.fail(f"a client failed: {error!r}")

    async def _ask(self, work: Callable[[Engine], Awaitable[Any]]) -> Any:
        """Have a server do it. DiedError: it died over it."""
        while not (up := [s for s in self.servers.values() if s.ready]):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        server = self._random.choice(up)
        answer = self.loop.create_future()
        self.loop.spawn(server.process, _answered(work, server.engine, answer))
        server.process.on_death.append(lambda: _died(answer))
        return await answer

    async def _persistently(self, work: Callable[[Engine], Awaitable[Any]]) -> Any:
        """As a client with retries: what nobody answered is asked again."""
        while True:
            try:
                return await self._ask(work)
            except (DiedError, LedgerError) as error:
                self.trace.add(f"asks again: {error!r}")
                self.done["client.again"] += 1
            await asyncio.sleep(self._random.uniform(0.1, 3))

    async def _submit(self, args: dict[str, Any]) -> None:
        number, tenant = args["no"], args["tenant"]
        envelope: dict[str, Any] = {
            "tenant_id": tenant,
            "request_type": args["request"],
            "input_ref": f"s3://bucket/{tenant}/{number}.pdf",
            "output_ref": "mem://out/{jobId}.txt",
            "payload": {"script": args["script"]},
            "schema_version": "v1",
        }
        if args["webhook"]:
            envelope["callback_urls"] = ["https://client.example/done"]
        if number % 3 == 0:
            envelope |= {"mode": "BURST", "doc_id": f"doc-{number}"}
        request = Request(envelope, f"key-{number}" if args["keyed"] else None)
        self.requests[number] = request
        await self._submitted(request, envelope)

    async def _submitted(self, request: Request, envelope: dict[str, Any]) -> str | None:
        try:
            answer = await self._persistently(
                lambda engine: engine.submit(envelope, idempotency_key=request.key)
            )
        except RequestError as error:
            self.done[f"refused.{error.code}"] += 1
            self.trace.add(f"is refused: {error.code}")
            return None
        self.observer.answered(answer.job_id, None, "a submission")
        self.done["submission.duplicate" if answer.duplicate else "submission.new"] += 1
        self.trace.add(f"has {short(answer.job_id)} {answer.state} {answer.duplicate}")
        request.job_ids.append(answer.job_id)
        found: str = answer.job_id
        return found

    async def _repeat(self, args: dict[str, Any]) -> None:
        request = self.requests.get(args["no"])
        if request is None:
            return
        envelope = request.envelope
        if args["how"] == "same":
            await self._submitted(request, envelope)
            return
        change = {"input_ref": "s3://bucket/another.pdf"} if args["how"] == "other_body" else {}
        if args["how"] == "other_tenant":
            change = {"tenant_id": "dogma"}
        other = Request({**envelope, **change}, request.key)
        job_id = await self._submitted(other, other.envelope)
        self.observer.require(
            job_id is None or job_id not in request.job_ids,
            f"8: another request was answered with {short(job_id)}",
        )

    async def _job_of(self, number: int) -> str | None:
        """The job of a submission, once someone was told of it."""
        request = self.requests.get(number)
        for _ in range(100):
            if request is not None and request.job_ids:
                return request.job_ids[0]
            await asyncio.sleep(0.2)
            request = self.requests.get(number)
        return None

    async def _await_end(self, number: int) -> None:
        """Whoever waits for a job is woken by its end, wherever that is committed."""
        job_id = await self._job_of(number)
        asked: list[float] = []

        def ended(engine: Engine) -> Awaitable[Job | None]:
            asked.append(self.loop.time())  # when a server is up that can be asked
            return engine.ended(str(job_id), 2 * PATIENCE)

        while job_id is not None:
            try:
                job = await self._ask(ended)
            except (DiedError, LedgerError):
                await asyncio.sleep(1)
                continue
            if job is not None and job.terminal:
                self.observer.answered(job_id, job.version, "a wait")
                self.done["waited"] += 1
                self._check_woken(job_id, asked[-1])
                return
            await asyncio.sleep(1)

    def _check_woken(self, job_id: str, began: float) -> None:
        if self.plan.kinds & UNANSWERING:
            return
        late = self.loop.time() - max(began, self.observer.ended_at[job_id])
        self.observer.require(
            late < 10, f"whoever waits for {short(job_id)} is woken {late:.1f} s late"
        )

    async def _order(self, number: int, order: str) -> None:
        job_id = await self._job_of(number)
        if job_id is None:
            return
        if order == "redrive":
            await self._redrive(job_id)
            return
        received = ORDERS[order]
        applied, read = await self._persistently(partial(_applied, job_id, received))
        self.observer.require(applied is not None, f"1: {short(job_id)} is gone")
        if applied is not None:
            old = (
                f"{short(job_id)} is read at {read.version}, and was told at {applied.job.version}"
            )
            self.observer.require(read.version >= applied.job.version, old)
            self.observer.answered(job_id, applied.job.version, order)
            self.done[f"{order}.{applied.outcome.value}"] += 1
            self.trace.add(f"{order} {short(job_id)}: {applied.outcome} {applied.job.state}")

    async def _redrive(self, job_id: str) -> None:
        try:
            answer = await self._persistently(lambda engine: engine.redrive(job_id))
        except RequestError as error:
            self.done[f"refused.{error.code}"] += 1
            return
        self.observer.answered(answer.job_id, None, "a redrive")
        self.done["redrive.applied"] += 1

    async def _bulk(self, order: str, tenant: str | None) -> None:
        query = JobQuery(tenant_ids=None if tenant is None else (tenant,))

        async def give(engine: Engine) -> Any:
            each = (
                order_to_redrive(engine)
                if order == "redrive"
                else order_to_move(engine, ORDERS[order])
            )
            return await order_matching(engine, query, lambda job: True, each, 1000)

        tally = await self._persistently(give)
        self.done["bulk.applied"] += tally.applied
        self.trace.add(f"bulk {order}: {tally.applied} of {tally.matched}")

    # -- the end -----------------------------------------------------------------------------

    def rest(self) -> bool:
        """Whether all is quiet. Paused jobs are resumed once nothing goes wrong any more."""
        if not self.calm or self._busy:
            return False
        setup, servers = self.plan.setup, self.servers.values()
        up = [server for server in servers if server.ready and not server.leaving]
        wanted = setup.servers + setup.api - len(self._away)
        return self.observer.quiet() and len(up) == wanted

    async def settled(self, seconds: float) -> None:
        """Return when nothing counts as held, released or in progress any more, or after so long."""
        give_up_at = self.loop.time() + seconds
        while self.loop.time() < give_up_at:
            await asyncio.sleep(4)
            if not any([await self.left_over(server) for server in self.servers.values()]):
                return

    async def left_over(self, server: Server) -> list[Any]:
        """Rows of the backlog that are not at zero, and what its windows count on lanes of others."""
        rows = [
            row
            for row in await server.backlog()
            if row["held"] or row["released"] or row["in_progress"]
        ]
        return [*rows, *server.counted().items()]

    async def resume_all(self) -> None:
        """A paused job always resumes."""
        while True:
            for job_id in self.observer.paused() if self.calm else ():
                await self._persistently(
                    lambda engine, job_id=job_id: engine.apply(job_id, ResumeRequested())  # type: ignore[misc]
                )
            await asyncio.sleep(5)

    def watch_over(self) -> None:
        self.loop.spawn(self._clients, self.resume_all())


async def _answered(
    work: Callable[[Engine], Awaitable[Any]], engine: Engine, answer: "asyncio.Future[Any]"
) -> None:
    found: Any
    try:
        found = await work(engine)
    except Exception as error:
        found = error
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)


async def _applied(job_id: str, received: Input, engine: Engine) -> tuple[Any, Any]:
    """What came of an order, and the job as it is read afterwards."""
    return await engine.apply(job_id, received), await engine.job(job_id)


def _died(answer: "asyncio.Future[Any]") -> None:
    if not answer.done():
        answer.set_exception(DiedError("the process died"))


UNPUNCTUAL: Final = frozenset(
    (
        *WINDOWS,
        *AIMED_WINDOWS,
        "kill_server",
        "kill_both",
        "stop_server",
        "freeze_server",
        "clock",
        "hold",
    )
)


INATTENTIVE: Final = frozenset(("freeze_server", "clock", "hold"))


def attentive(plan: Plan) -> bool:
    """Whether the server hears at once that services which it has started are dead."""
    away = any(kind.startswith("ledger.") for kind in plan.kinds)
    return plan.setup.bus == "volatile" and not away and not plan.kinds & INATTENTIVE


UNANSWERING: Final = frozenset(
    (*WINDOWS, *PAUSES, "leases.fail", "leases.keep", "ledger.late_read", "nudge.lost")
)
"""What keeps whoever waits for an end from being told of it soon."""


def punctual(plan: Plan) -> bool:
    """Whether nothing in the plan keeps the owner of a lane from moving what is due."""
    return not plan.kinds & UNPUNCTUAL
