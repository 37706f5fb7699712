"""A runtime: everything of one process, wired. It is started by entering it and stopped by leaving."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import uuid4

import httpx
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.applications import Starlette

from lucius.admission.ingress import Ingress
from lucius.api.app import Application, create_app
from lucius.api.context import ApiContext, ApiOptions, HealthCheck
from lucius.api.health import health_app
from lucius.api.limits import WaitLimit
from lucius.api.shared_keys import SharedKeys
from lucius.api.standing import CallerWatch
from lucius.api.tokens import CallbackTokens
from lucius.bootstrap.adapters import (
    authenticator,
    check_workspace,
    console_options,
    home_of,
    host_check,
    ingress_policy,
    job_workspaces,
    open_bus,
    open_config,
    open_keys,
    open_lanes,
    open_ledger,
    open_workspace,
    rate_limit,
    worker_rate_limit,
)
from lucius.bootstrap.insight import insight, listening
from lucius.bootstrap.loop_watch import Block, LoopWatch
from lucius.bootstrap.outbox import outbox
from lucius.bootstrap.private_files import own_data
from lucius.bootstrap.secrets import callback_keys, check_shared_secrets, webhook_secret
from lucius.bootstrap.services import check_services, runners_of
from lucius.bootstrap.temporal import of_temporal, open_workflows, place_of
from lucius.console.room import console, root_path_of
from lucius.core.effects import Decision
from lucius.core.errors import (
    LedgerError,
    LedgerUnavailableError,
    LuciusError,
    WorkflowsUnavailableError,
)
from lucius.core.inputs import Callback
from lucius.core.job import Job
from lucius.core.plan import FIRST_DESK, OUTBOX
from lucius.core.states import StepState
from lucius.engines.outbox.clock import SteadyClock, StorageClock
from lucius.engines.outbox.engine import Listener
from lucius.engines.outbox.observer import Incident
from lucius.engines.outbox.publish_now import OutboxRetry
from lucius.engines.temporal.asking import AskingHere
from lucius.engines.temporal.drift import WorkflowDrift
from lucius.engines.temporal.engine import TemporalEngine
from lucius.engines.temporal.invoker import Invoker
from lucius.engines.temporal.remote import RemoteInvoker
from lucius.engines.temporal.starter import WorkflowStarter
from lucius.gateway.bus_gateway import BusGateway
from lucius.platform import Service, ServiceRunner
from lucius.platform.isolation.forks import ForkServer
from lucius.ports.bus import Bus
from lucius.ports.config import ConfigSource
from lucius.ports.engine import Engine
from lucius.ports.lanes import ALL_LANES, FixedLanes, Lanes
from lucius.ports.ledger import Dated, Ledger, Sweeps
from lucius.ports.workflows import Workflows
from lucius.ports.workspace import Workspace
from lucius.settings import Settings
from lucius.telemetry.instruments import Measured
from lucius.telemetry.spans import traced
from lucius.upkeep.retention import prune
from lucius.webhooks.sender import Webhooks

log = logging.getLogger("lucius")

SLOTS: Final = 64
"""Steps that each embedded service runs at once."""
RESTART_PAUSE: Final = timedelta(seconds=1)
SHARED_LOOK: Final = timedelta(seconds=1)
"""Other processes leave jobs that are due at once, and their nudge may be lost."""
SWEEP_PAUSE: Final = timedelta(minutes=1)
REPAIR_PAUSE: Final = timedelta(minutes=5)
"""Between two comparisons of the ledger with Temporal."""
PRUNE_PAUSE: Final = timedelta(minutes=10)
"""Between two looks for jobs that are kept no longer."""


@dataclass
class Runtime:
    """Everything in one process. Enter `running` to start it; leaving it stops it in order."""

    settings: Settings
    ledger: Ledger
    bus: Bus
    config: ConfigSource
    workspace: Workspace
    services: Sequence[Service] = ()
    reconciles: bool = True
    """Whether what is due is moved here too, or by other processes."""
    lanes: Lanes = ALL_LANES
    """Those that this process owns."""
    engine_name: str | None = None
    """The engine whose replies come here; None: those of all engines."""
    workflows: Workflows | None = None
    """Of jobs on Temporal, where this process starts or signals them."""
    remote_invoker: RemoteInvoker | None = None
    """Who moves the jobs on Temporal that are created here."""
    worker: Callable[[Invoker], Coroutine[Any, Any, None]] | None = None
    """Runs the workflows in this process too."""
    listeners: Sequence[Listener] = ()
    """Told of every committed decision, besides those that are built here."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    webhook_transport: httpx.AsyncBaseTransport | None = None
    """How webhooks are sent; None: over a transport that only leads outside."""

    def __post_init__(self) -> None:
        settings = self.settings
        check_services(self.services)
        self.down: dict[str, str] = {}
        self.started = False
        self.stopping = False
        self._draining: asyncio.Task[None] | None = None
        self.tokens = CallbackTokens(callback_keys(settings))
        self.watch = CallerWatch()
        self.keys = open_keys(settings, self.ledger)
        self.job_workspaces = job_workspaces(settings, self.workspace)
        self.forks = [ForkServer()]
        home = home_of(settings)
        self._incarnation = f"{home}{uuid4().hex[:8]}/"
        """Services that live here name it: a later process knows by it who has died."""
        self.runners = [runner for service in self.services for runner in self._runners(service)]
        self.webhooks = Webhooks(
            webhook_secret(settings),
            hosts=settings.webhook_hosts,
            schemes=settings.webhook_schemes,
            now=utc_now,
            transport=self.webhook_transport,
        )
        ingress = Ingress(self.config, ingress_policy(settings))
        self._storage_clock = storage_clock(self.ledger)
        wall = self._storage_clock.now if self._storage_clock is not None else utc_now
        self._clock = SteadyClock(wall, time.monotonic)
        shared = not isinstance(self.lanes, FixedLanes)
        self._starter = self._starter_of(self.workflows) if self.workflows is not None else None
        self.heard = listening(self.ledger, self.lanes, self._clock.now)
        self.outbox = outbox(
            self.ledger,
            self.bus,
            ingress,
            now=self._clock.now,
            limits=ingress.limits,
            listeners=(
                self._pass_cancel_on,
                *self._starts(),
                *self.heard.listeners,
                *self.listeners,
            ),
            cache_bytes=settings.job_cache_bytes,
            lanes=self.lanes,
            topologies=settings.topologies(),
            look=min(settings.outbox_retry_interval, SHARED_LOOK)
            if shared
            else settings.outbox_retry_interval,
            decorate=self._decorate,
            tokens=self.tokens.every,
            notify=self.webhooks.notify,
            guard=self._guard,
            home=home,
            alive=self._incarnation,
            workflows=self.workflows,
            engine_name=self.engine_name,
            held_back=self.heard.paused,
            observers=self.heard.observers,
        )
        self.engine, self.metrics = self.outbox.engine, self.outbox.metrics
        self.metrics.register(self.registry)
        if isinstance(self.ledger, Measured):
            self.ledger.instruments.register(self.registry)
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
            self.heard,
            self.ledger,
            self.outbox,
            lanes=self.lanes,
            catalog=self.config.catalog,
            troubles=self._troubles,
            now=self._clock.now,
        )
        self.loop_watch = LoopWatch(settings.loop_blocked, self._whose, self._blocked)

    def _starter_of(self, workflows: Workflows) -> WorkflowStarter:
        return WorkflowStarter(workflows, self.ledger, now=self._clock.now)

    def _starts(self) -> tuple[Listener, ...]:
        """Where lanes are owned, starting a workflow is an effect like others."""
        return () if self._starter is None or self.reconciles else (self._starter.listen,)

    def _runners(self, service: Service) -> list[ServiceRunner]:
        return runners_of(
            service,
            self.bus,
            self.workspace,
            topology=self.settings.lane_topology,
            topologies=self.settings.topologies(),
            slots=SLOTS,
            forks=self._forks_of(service),
            grace=self.settings.drain,
            worker_id=f"{self._incarnation}{service.name}",
        )

    def _forks_of(self, service: Service) -> ForkServer:
        """A child knows all that its fork server was told: so secrets are told to one of their own."""
        if service.private:
            self.forks.append(ForkServer())
            return self.forks[-1]
        return self.forks[0]

    def _whose(self, task: asyncio.Task[Any] | None) -> str | None:
        return next((runner.name for runner in self.runners if runner.serves(task)), None)

    def _blocked(self, block: Block) -> None:
        self.metrics.loop_blocked.add(block.seconds, block.service)

    def _pass_cancel_on(self, before: Job | None, decision: Decision) -> None:
        """Services that live here hear of a cancellation directly, others by notices or heartbeats.

        A lease that the ledger has ended ends here too: nothing more is committed under it.
        """
        job = decision.job
        for lease_id in ended_leases(before, job) if before is not None and self.runners else ():
            for runner in self.runners:
                runner.end_lease(lease_id)
        if job.cancel_requested_at is not None and before is not None and before.state != job.state:
            for runner in self.runners:
                runner.request_cancel(job.job_id)

    def _decorate(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a directive needs to be answered; minted at publish, stored nowhere."""
        base = self.settings.public_url.rstrip("/")
        body["callback_urls"] = {
            kind: f"{base}/v1/callbacks/{kind}"
            for kind in ("ack", "result", "heartbeat", "release")
        }
        body["callback_token"] = self.tokens.mint(
            body["tenant_id"], body["jobId"], body["stepId"], body["attempt_no"], body["lease_id"]
        )
        return body

    def _guard(self, body: Mapping[str, Any], job_id: str, received: Callback) -> str | None:
        """Bus replies are checked when they carry a token, and must carry one where so configured."""
        token = body.get("callback_token")
        if token is None:
            needed = self.settings.require_reply_token
            return "the reply carries no callback token" if needed else None
        bound = (job_id, received.step_id, received.attempt_no, received.lease_id)
        if self.tokens.verify(str(token), *bound) is None:
            return "the callback token is not for this attempt"
        return None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Runtime"]:
        await self.gateway.prepare()
        for runner in self.runners:
            await runner.start()
        await self.heard.paused.look()
        await self.insight.sightings.recall()
        tasks = {"configuration": self._refresh_forever, "callers": self.watch.run}
        if isinstance(self.keys, SharedKeys):
            tasks["keys"] = self.keys.run
        tasks |= {"sightings": self.insight.sightings.run, "pauses": self.heard.paused.run}
        tasks |= {"failures": self.heard.failures.run}
        if self.reconciles:
            tasks |= {"redrives": self.insight.redrives.run}
            await self.reconciler.prepare()
            tasks |= {"reconciler": self.reconciler.run, "retention": self._prune_forever}
            tasks |= {"claims": self._sweep_forever}
            if self.workflows is not None:
                tasks |= {"drift": partial(self._repair_forever, self.workflows)}
        else:
            tasks |= {"nudges": self.outbox.nudges.run, "notices": self.outbox.notices.run}
            if self._starter is not None:
                tasks |= {"starter": self._starter.run}
        if self.worker is not None:
            tasks |= {"worker": partial(self.worker, self.invoker)}
        background = [
            asyncio.create_task(self._supervise(name, run)) for name, run in tasks.items()
        ]
        self.started = True
        try:
            with self.loop_watch.watching():
                yield self
        finally:
            await self.take_no_more()
            if self.reconciles:
                await self.outbox.replies.drained()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            with contextlib.suppress(LedgerError):
                await self.lanes.give_back()
            await self.outbox.tasks.close()
            await self.webhooks.close()
            for forks in self.forks:
                await forks.close()
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
            self._draining = asyncio.create_task(self._drain())
        return self._draining

    async def _drain(self) -> None:
        await asyncio.gather(*(runner.stop() for runner in self.runners))

    @property
    def left_behind(self) -> int:
        """Executions that would not end, once it has stopped."""
        return sum(runner.left_behind for runner in self.runners)

    async def _supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """What ends by a defect is begun anew; until then the process is not ready."""
        while True:
            try:
                await run()
            except Exception as error:
                log.exception("the %s has ended and is started again", name)
                self.metrics.incident(Incident.TASK_FAILED, name)
                self.down[name] = repr(error)
                await asyncio.sleep(RESTART_PAUSE.total_seconds())
                self.down.pop(name)

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.config_refresh.total_seconds())
            if await self.config.refresh():
                log.info("the configuration has changed: %s", self.config.catalog().version)
                await self.gateway.prepare()

    async def _prune_forever(self) -> None:
        retention = self.settings.retention
        if retention is None:
            await asyncio.Future()
            return
        while True:
            await asyncio.sleep(0 if self._is_first_owner() else SWEEP_PAUSE.total_seconds())
            if not self._is_first_owner():
                continue
            before = self._clock.now() - retention
            forget = self.engine.forget_ended
            deleted = await prune(self.ledger, self.job_workspaces, before, forget=forget)
            if deleted:
                log.info("%d jobs that ended before %s ago are deleted", deleted, retention)
            await asyncio.sleep(PRUNE_PAUSE.total_seconds())

    async def _repair_forever(self, workflows: Workflows) -> None:
        """Workflows that have not heard of the end of their jobs are told."""
        drift = WorkflowDrift(workflows, self.ledger)
        while True:
            await asyncio.sleep(REPAIR_PAUSE.total_seconds())
            with contextlib.suppress(LedgerError, WorkflowsUnavailableError):
                told = await drift.repair() if self._is_first_owner() else 0
                if told:
                    log.warning("%d workflows were told that their jobs have ended", told)

    async def _sweep_forever(self) -> None:
        """Requests that were claimed and never written are forgotten, where the ledger can have such."""
        while isinstance(self.ledger, Sweeps):
            await asyncio.sleep(SWEEP_PAUSE.total_seconds())
            if self._is_first_owner():
                with contextlib.suppress(LedgerUnavailableError):
                    await self.ledger.sweep(self._clock.now())
        await asyncio.Future()

    def _is_first_owner(self) -> bool:
        """What one process should do for all is done by the owner of the first lane."""
        return any(first in self.lanes.owned for first in FIRST_DESK.values())

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
        options = console_options(self.settings, self.keys, context.authenticate)
        return create_app(context, [console(context, options)])

    def context(self, **changes: Any) -> ApiContext:
        """What the API is given."""
        return replace(
            ApiContext(
                engine=self._port(),
                config=self.config,
                tokens=self.tokens,
                checks={
                    **self.checks(),
                    **({"keys": self.keys.check} if self.keys is not None else {}),
                },
                registry=self.registry,
                authenticate=authenticator(self.settings, self.keys),
                rate=rate_limit(self.settings),
                worker_rate=worker_rate_limit(self.settings),
                waits=WaitLimit(self.settings.max_waiting_per_caller),
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
                doctor=self.insight.doctor,
                failures=self.heard.failures,
                redrives=self.insight.redrives,
                watch=self.watch,
                warnings=self._warnings,
                stopping=lambda: self.stopping,
                options=ApiOptions(
                    max_body_bytes=self.settings.max_body_bytes,
                    root_path=root_path_of(self.settings.console_url),
                ),
            ),
            **changes,
        )

    def checks(self) -> dict[str, HealthCheck]:
        """What must be well for this process to be ready."""
        return {
            "ledger": self._check_ledger,
            **({"clock": self._check_clock} if self._storage_clock is not None else {}),
            "bus": self._check_bus,
            "reconciler": self._check_tasks,
            **({"temporal": self.workflows.check} if self.workflows is not None else {}),
        }

    def health_app(self) -> Starlette:
        """For a process without the API."""
        return health_app(self.checks(), self.registry, self._measure)

    async def _check_clock(self) -> None:
        if self._storage_clock is not None:
            self._storage_clock.check()

    async def _measure(self, up: Mapping[str, bool]) -> None:
        self.metrics.config_valid.show({(): float(self.config.fault() is None)})
        await self.metrics.refresh(up)

    def _troubles(self) -> dict[str, str]:
        """What does not answer this process now, or has ended here."""
        found = {name: f"the {name} has ended and is started again" for name in self.down}
        if self.dispatcher.outage.on or self.outbox.replies.outage.on:
            found["bus"] = "the bus does not answer"
        return found

    def _warnings(self) -> dict[str, str]:
        block = self.loop_watch.recent()
        return {} if block is None else {"event_loop": str(block)}

    async def _check_ledger(self) -> None:
        await self.ledger.check()

    async def _check_tasks(self) -> None:
        if self.down:
            raise LuciusError("; ".join(f"{name}: {why}" for name, why in self.down.items()))

    async def _check_bus(self) -> None:
        if self.dispatcher.outage.on:
            raise LuciusError("the bus does not take directives")
        if self.outbox.replies.outage.on:
            raise LuciusError("the bus does not deliver replies")


async def build(
    settings: Settings,
    services: Sequence[Service] = (),
    *,
    reconciles: bool = True,
    engine: str | None = None,
) -> Runtime:
    """A runtime of the adapters that the settings name. `engine`: whose jobs it moves; None: of all."""
    if services:
        check_workspace(settings)
    config = await open_config(settings)
    try:
        return await _built(settings, services, config, reconciles, engine)
    except BaseException:
        await config.close()
        raise


async def _built(
    settings: Settings,
    services: Sequence[Service],
    config: ConfigSource,
    reconciles: bool,
    engine: str | None,
) -> Runtime:
    check_shared_secrets(settings)
    bus = traced(open_bus(settings))
    own_data(settings)
    workspace = open_workspace(settings)
    await job_workspaces(settings, workspace).claim()
    workflows = await open_workflows(settings) if with_workflows(settings, engine) else None
    ledger = await open_ledger(settings)
    both = engine is None and reconciles and workflows is not None
    return Runtime(
        settings=settings,
        ledger=ledger,
        lanes=open_lanes(
            settings, ledger, takes=reconciles, engine=None if both else engine or OUTBOX
        ),
        engine_name=engine if settings.temporal_enabled else None,
        workflows=workflows,
        remote_invoker=remote_invoker(settings) if workflows and not reconciles else None,
        worker=partial(work, settings) if both else None,
        bus=bus,
        config=config,
        workspace=workspace,
        services=services,
        reconciles=reconciles,
    )


def with_workflows(settings: Settings, engine: str | None) -> bool:
    """A reconciler of the outbox engine has nothing to do with them."""
    return settings.temporal_enabled and engine != OUTBOX


def remote_invoker(settings: Settings) -> RemoteInvoker:
    return RemoteInvoker(settings.invoker_url, settings.invoker_secret.get_secret_value())


async def work(settings: Settings, invoker: Invoker) -> None:
    """The worker, in the process of the invoker."""
    await of_temporal("worker").run_worker(place_of(settings), AskingHere(invoker))


def ended_leases(before: Job, job: Job) -> list[str]:
    """Leases that were the current ones and are no more: replaced, or their job has ended without them.

    During a backoff the last attempt is still the current one: its late success counts.
    """
    return [
        old.execution.exec_id
        for old, new in zip(before.steps, job.steps, strict=True)
        if old.execution is not None
        and new.execution is not None
        and old.state is not StepState.SUCCEEDED
        and new.state is not StepState.SUCCEEDED
        and (new.execution.exec_id != old.execution.exec_id or job.terminal)
    ]


def storage_clock(ledger: Ledger) -> StorageClock | None:
    """The time of a shared ledger's storage; an embedded one has none of its own."""
    if not isinstance(ledger, Dated):
        return None
    return StorageClock(utc_now, time.monotonic, ledger.dated)


def utc_now() -> datetime:
    return datetime.now(UTC)
