"""A runtime: everything of one process, wired. It is started by entering it and stopped by leaving."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import uuid4

import httpx
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.applications import Starlette

from lucius.app.access import (
    ReplyTokens,
    authenticator,
    console_options,
    host_check,
    open_keys,
    rate_limit,
    worker_rate_limit,
)
from lucius.app.adapters import (
    home_of,
    ingress_policy,
    job_workspaces,
)
from lucius.app.background_tasks import (
    BackgroundTask,
    BackgroundTasks,
    Chores,
    ProcessHealth,
    refresh,
)
from lucius.app.engine import outbox
from lucius.app.health import health_app
from lucius.app.loop_watch import Block, LoopWatch
from lucius.app.operations import insight, listening
from lucius.app.provisioning import mark_of
from lucius.app.secrets import callback_keys, webhook_secret
from lucius.app.services import ServiceHost, check_services
from lucius.app.services_process import ServicesProcess
from lucius.app.settings import Settings
from lucius.contract.words import JsonObject
from lucius.core.errors import (
    LedgerError,
)
from lucius.core.plan import OUTBOX, TEMPORAL
from lucius.engine.admission.ingress import Ingress
from lucius.engine.clock import SteadyClock, StorageClock
from lucius.engine.dispatcher import OutboxRetry
from lucius.engine.gateway import BusGateway
from lucius.engine.loop import Listener, OwedEffects
from lucius.engine.ownership import LostServices
from lucius.engine.temporal.engine import TemporalEngine, WorkflowStarter
from lucius.engine.temporal.invoker import Invoker
from lucius.engine.temporal.invoker_client import RemoteInvoker
from lucius.http.app import Application, create_app
from lucius.http.console.pages import console, root_path_of
from lucius.http.context import ApiContext, ApiOptions, CallerWatch
from lucius.http.keys import SharedKeys
from lucius.http.limits import WaitLimit
from lucius.http.owner import owner_only, this_user
from lucius.http.tokens import CallbackTokens
from lucius.operations.services import OwnServices
from lucius.operations.webhooks import Webhooks
from lucius.operations.why import ProcessState
from lucius.platform import Service
from lucius.platform.bodies import ServiceInstruments
from lucius.ports.bus import Bus
from lucius.ports.config import ConfigSource
from lucius.ports.engine import Engine
from lucius.ports.lanes import ALL_LANES, FixedLanes, Lanes
from lucius.ports.ledger import Dated, Ledger, Sweeps
from lucius.ports.workflows import Workflows
from lucius.ports.workspace import Restores, Unrestored, Workspace
from lucius.system.instruments import Measured
from lucius.system.spans import traced

SHARED_LOOK: Final = timedelta(seconds=1)
"""How often what is due is looked for where other processes leave work: their nudge may be lost."""
WAITING: Final = 900
"""Requests of one caller that may wait at once: event streams, long polls and pulls. An address may have 100
connections more, for what it asks without waiting."""
UNRESTORED: Final = "{} lost outputs cannot be written again; `lucius verify` and the log name them"


@dataclass
class Runtime:
    """Everything in one process. Enter `running` to start it; leaving it stops it in order."""

    settings: Settings
    ledger: Ledger
    bus: Bus
    config: ConfigSource
    workspace: Workspace
    services: Sequence[Service]
    """Those that `lucius up` runs."""
    apart: Sequence[str] | None
    """The names of these services, which run in a process of their own; None: they run in this one."""
    reconciles: bool
    """Whether what is due is moved here too, or by other processes."""
    lanes: Lanes
    """Those that this process owns."""
    engine_name: str | None
    """The engine whose replies come here; None: those of all engines."""
    workflows: Workflows | None
    """How workflows of jobs on Temporal are started and signalled; None: not by this process."""
    remote_invoker: RemoteInvoker | None
    """Who moves the jobs on Temporal that are created here."""
    worker: Callable[[Invoker], Coroutine[Any, Any, None]] | None
    """Runs the workflows in this process too."""
    in_force: Callable[[], Settings]
    """The settings as they count now: some of them are read again while the process runs."""
    listeners: Sequence[Listener] = ()
    """Told of every committed decision, besides those that are built here."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    webhook_transport: httpx.AsyncBaseTransport | None = None
    """How webhooks are sent; None: over a transport that only leads outside."""

    def __post_init__(self) -> None:
        settings = self.settings
        self._plain_bus, self.bus = self.bus, traced(self.bus)
        self.started = False
        self.stopping = False
        self._draining: asyncio.Task[None] | None = None
        self.tokens = CallbackTokens(callback_keys(settings))
        self.watch = CallerWatch()
        self.keys = open_keys(settings, self.ledger)
        self.job_workspaces = job_workspaces(settings, self.workspace)
        home = home_of(settings)
        incarnation = f"{home}{uuid4().hex[:8]}/"
        lost = LostServices(home, incarnation)
        reply_tokens = ReplyTokens(
            self.tokens,
            settings.public_url,
            required=settings.require_reply_token,
            prefix=settings.topic_prefix,
        )
        self.webhooks = Webhooks(
            webhook_secret(settings),
            hosts=settings.webhook_hosts,
            now=utc_now,
            transport=self.webhook_transport,
        )
        served = [service.name for service in self.services]
        ingress = Ingress(self.config, ingress_policy(settings, served))
        clock = storage_clock(self.ledger)
        wall = clock.now if clock is not None else utc_now
        self._clock = SteadyClock(wall, time.monotonic)
        shared = not isinstance(self.lanes, FixedLanes)
        self._starter = self._starter_of(self.workflows) if self.workflows is not None else None
        self.activity = listening(self.ledger, self.lanes, self._clock.now)
        self.service_counts = ServiceInstruments()
        if self.services:
            self.service_counts.register(self.registry)
        self.own = self._service_host(incarnation, lost)
        self.outbox = outbox(
            self.ledger,
            self.bus,
            ingress,
            now=self._clock.now,
            limits=ingress.limits,
            listeners=(
                self.own.listen,
                *self._starts(),
                *self.activity.listeners,
                *self.listeners,
            ),
            lanes=self.lanes,
            owed=OwedEffects(),
            topologies=settings.topologies(),
            look=min(settings.outbox_retry_interval, SHARED_LOOK)
            if shared
            else settings.outbox_retry_interval,
            decorate=reply_tokens.decorate,
            tokens=self.tokens.every,
            notify=self.webhooks.notify,
            guard=reply_tokens.guard,
            lost=lost,
            here=incarnation,
            workflows=self.workflows,
            engine_name=self.engine_name,
            held_back=self.activity.paused,
            observers=self.activity.observers,
        )
        self.engine, self.metrics = self.outbox.engine, self.outbox.metrics
        self.metrics.register(self.registry)
        self.background_tasks = BackgroundTasks(self.metrics)
        self.process_health = ProcessHealth(
            self.ledger, self.outbox, self.background_tasks, clock, self.workflows
        )
        self.webhooks.instruments.register(self.registry)
        if isinstance(self.ledger, Measured):
            self.ledger.instruments.register(self.registry)
        if isinstance(self.workflows, Measured):
            self.workflows.instruments.register(self.registry)
        ProcessCollector(registry=self.registry)
        self.dispatcher, self.reconciler = self.outbox.dispatcher, self.outbox.reconciler
        self.invoker = Invoker(
            self.engine,
            self.dispatcher,
            self.outbox.ticks,
            self.outbox.nudges,
            lanes=self.lanes,
            now=self._clock.now,
        )
        self.gateway = BusGateway(
            self.bus,
            self.config,
            topology=settings.lane_topology,
            topologies=settings.topologies(),
            backlog=self.outbox.pulls,
        )
        self.insight = insight(
            self.activity,
            self.ledger,
            self.outbox,
            lanes=self.lanes,
            catalog=self.config.catalog,
            troubles=self.process_health.troubles,
            process=ProcessState(
                self._unrestored,
                self._services_down,
                self.config.fault,
                ingress.limits,
                settings.bus_backend == "servicebus",
            ),
            now=self._clock.now,
            engine=TEMPORAL if settings.temporal_enabled else OUTBOX,
            engine_port=self._port(),
            own=lambda: self._own_services(lost),
        )
        # Leases of services that run here need no heartbeats from beside the loop: who ends them is on it.
        self.loop_watch = LoopWatch(self.own.whose, self._blocked, lambda: None)

    def _service_host(self, incarnation: str, lost: LostServices) -> ServiceHost | ServicesProcess:
        settings = self.settings
        if self.apart is not None:
            check_services(self.services)
            return ServicesProcess(
                self.apart,
                settings,
                self._plain_bus,
                lambda: self.outbox.replies,
                incarnation=incarnation,
                lost=lost,
                blocked=self._blocked_beside,
                instruments=self.service_counts,
            )
        return ServiceHost(
            self.services,
            self.bus,
            self.workspace,
            topology=settings.lane_topology,
            topologies=settings.topologies(),
            grace=settings.drain,
            incarnation=incarnation,
            instruments=self.service_counts,
        )

    def _starter_of(self, workflows: Workflows) -> WorkflowStarter:
        return WorkflowStarter(workflows, self.ledger, now=self._clock.now)

    def _starts(self) -> tuple[Listener, ...]:
        """A process without lanes starts workflows at the commit. An owner does it as an owed effect."""
        return () if self._starter is None or self.reconciles else (self._starter.listen,)

    def _blocked_beside(self, block: Block) -> None:
        self.loop_watch.note(block)

    def _blocked(self, block: Block) -> None:
        self.metrics.loop_blocked.add(block.seconds, block.service)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Runtime"]:
        async with self._ending():
            await self._prepare()
            async with self.background_tasks.watching(self._background()):
                self.started = True
                try:
                    with self.loop_watch.watching():
                        yield self
                finally:
                    await self.take_no_more()
                    if self.reconciles:
                        await self.outbox.replies.drained()

    async def _prepare(self) -> None:
        """Make topics and services ready. The bus of another deployment is refused."""
        if not self.bus.volatile:
            await self.bus.ensure([mark_of(self.settings)])
        await self.gateway.prepare()
        await self.own.start()
        await self.activity.paused.look()
        await self.insight.published_stats.recall()
        if self.reconciles:
            await self.reconciler.prepare()

    def _background(self) -> dict[str, BackgroundTask]:
        """What runs for as long as the process, by its name in log and readiness."""
        tasks: dict[str, BackgroundTask] = {
            "configuration": partial(refresh, self.config, self.gateway),
            "callers": self.watch.run,
            "sightings": self.insight.published_stats.run,
            "pauses": self.activity.paused.run,
            "failures": self.activity.failures.run,
        }
        if isinstance(self.keys, SharedKeys):
            tasks["keys"] = self.keys.run
        if self.worker is not None:
            tasks["worker"] = partial(self.worker, self.invoker)
        return tasks | (self._of_the_owner() if self.reconciles else self._of_the_api())

    def _of_the_owner(self) -> dict[str, BackgroundTask]:
        """Background work of a process that moves what is due."""
        chores = Chores(self.engine, self.ledger, self.lanes, now=self._clock.now)
        tasks: dict[str, BackgroundTask] = {
            "redrives": self.insight.redrives.run,
            "reconciler": self.reconciler.run,
        }
        if (retention := self.settings.retention) is not None:
            tasks["retention"] = partial(chores.prune, self.job_workspaces, retention)
        if isinstance(self.ledger, Sweeps):
            tasks["claims"] = partial(chores.sweep, self.ledger)
        if self.workflows is not None:
            tasks["drift"] = partial(chores.repair, self.workflows)
        return tasks

    def _of_the_api(self) -> dict[str, BackgroundTask]:
        """Background work of a process whose jobs are moved by others."""
        tasks: dict[str, BackgroundTask] = {
            "nudges": self.outbox.nudges.run,
            "notices": self.outbox.notices.run,
        }
        if self._starter is not None:
            tasks["starter"] = self._starter.run
        return tasks

    @asynccontextmanager
    async def _ending(self) -> AsyncIterator[None]:
        """Close everything at the end, in order, when nothing runs any more."""
        try:
            yield
        finally:
            with contextlib.suppress(LedgerError):
                await self.lanes.give_back()
            await self.outbox.tasks.close()
            await self.webhooks.close()
            await self.own.close()
            await self.workspace.close()
            await self.bus.close()
            if self.remote_invoker is not None:
                await self.remote_invoker.close()
            await self.config.close()
            await self.ledger.close()

    def take_no_more(self) -> "asyncio.Task[None]":
        """Nothing new begins from now on, anywhere; what runs is drained, by all services together."""
        if self._draining is None:
            self.stopping = True
            self.gateway.close()
            self.dispatcher.close()
            self._draining = asyncio.create_task(self.own.drain())
        return self._draining

    @property
    def left_behind(self) -> int:
        """Executions that would not end, once it has stopped."""
        return self.own.left_behind

    def now(self) -> datetime:
        """The time that jobs go by."""
        return self._clock.now()

    def end_waits(self) -> None:
        """Requests that wait for something are answered now, so that they do not delay the end."""
        self.engine.end_waits()

    def _port(self) -> Engine:
        if self.remote_invoker is None:
            return self.engine
        return TemporalEngine(self.engine, self.remote_invoker)

    def app(self) -> Application:
        context = self.context()
        options = console_options(
            self.settings, self.ledger.shared_records(), self.keys, context.authenticate
        )
        return create_app(context, [console(context, options)])

    def context(self, **changes: Any) -> ApiContext:
        """What the API is given."""
        return replace(
            ApiContext(
                engine=self._port(),
                config=self.config,
                tokens=self.tokens,
                checks={
                    **self.process_health.checks(),
                    **({"keys": self.keys.check} if self.keys is not None else {}),
                },
                registry=self.registry,
                authenticate=authenticator(self.settings, self.keys),
                rate=rate_limit(self.settings),
                worker_rate=worker_rate_limit(self.settings),
                waits=WaitLimit(WAITING),
                hosts=host_check(self.settings),
                refresh=self._measure,
                retry_outbox=OutboxRetry(
                    self.engine,
                    self.ledger,
                    self.outbox.releases,
                    self.config.catalog,
                    lanes=ALL_LANES,
                    now=self._clock.now,
                ),
                gateway=self.gateway,
                services=self.insight.services,
                refusals=self.activity.refusals,
                webhooks=self.insight.published_stats,
                diagnoser=self.insight.diagnoser,
                failures=self.activity.failures,
                redrives=self.insight.redrives,
                watch=self.watch,
                warnings=self._warnings,
                settings=self._shown_settings,
                stopping=lambda: self.stopping,
                options=ApiOptions(
                    root_path=root_path_of(self.settings.console_url),
                    topology=self.settings.lane_topology,
                    topic_prefix=self.settings.topic_prefix,
                ),
            ),
            **changes,
        )

    def health_app(self) -> Starlette:
        """For a process without the API. Its metrics name tenants, so they are for those who may know."""
        known = authenticator(self.settings, self.keys) or owner_only(this_user())
        return health_app(self.process_health.checks(), self.registry, self._measure, known)

    async def _measure(self, up: Mapping[str, bool]) -> None:
        self.metrics.config_valid.show({(): float(self.config.fault() is None)})
        self.metrics.unrestored.show({(): float(len(self._unrestored()))})
        self.own.measure()
        await self.metrics.refresh(up)

    def _unrestored(self) -> Sequence[Unrestored]:
        return self.workspace.unrestored() if isinstance(self.workspace, Restores) else ()

    def _own_services(self, lost: LostServices) -> OwnServices:
        running = [] if self.own.trouble else [each.name for each in self.services]
        return OwnServices(lost.home, lost.alive, frozenset(running))

    def _services_down(self) -> dict[str, str]:
        trouble = self.own.trouble
        return {} if trouble is None else {each.name: trouble for each in self.services}

    def _shown_settings(self) -> JsonObject:
        return self.in_force().shown()

    def _warnings(self) -> dict[str, str]:
        block = self.loop_watch.recent()
        lost = len(self._unrestored())
        found = {
            "event_loop": None if block is None else str(block),
            "services": self.own.trouble,
            "outputs": UNRESTORED.format(lost) if lost else None,
            "background": self.background_tasks.warning,
        }
        return {name: text for name, text in found.items() if text is not None}


def storage_clock(ledger: Ledger) -> StorageClock | None:
    """The time of a shared ledger's storage; an embedded one has none of its own."""
    if not isinstance(ledger, Dated):
        return None
    return StorageClock(utc_now, time.monotonic, ledger.dated)


def utc_now() -> datetime:
    return datetime.now(UTC)
