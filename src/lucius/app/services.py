"""The services that run in this process: their runners, the processes they fork, and who tells them."""

import asyncio
import importlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from lucius.app.adapters import LibrariesMissingError, UnsupportedError
from lucius.app.lifecycle import say_stopping
from lucius.app.settings import Settings
from lucius.core.effects import Committed
from lucius.core.errors import LuciusError
from lucius.core.job import StepState
from lucius.core.plan import Mode
from lucius.core.routing import TOPOLOGIES, every_directive_topic, subscriptions_of
from lucius.platform import Service, ServiceError, ServiceRunner
from lucius.platform.bodies import ServiceInstruments
from lucius.platform.chaos import Chaos
from lucius.platform.isolation.forks import ForkServer
from lucius.platform.records import Records
from lucius.platform.service import check_service, slots_of
from lucius.ports.bus import Bus, directive_filters
from lucius.ports.workspace import Workspace
from lucius.services import Embedding, Ocr, Sis, missing
from lucius.services.endpoint import AnswerEndpoint

# The runners of a platform service: one, or one for each mode where the lanes are filtered by it.

DRAIN = timedelta(seconds=10)


class ModeNotApartError(LuciusError):
    """A service was asked to serve one mode, and its subscription holds both."""


def check_services(services: Sequence[Service]) -> None:
    """Two that share a name share the work, two that share a step type both do it: neither is meant."""
    names: dict[str, Service] = {}
    step_types: dict[str, Service] = {}
    for service in services:
        check_service(service)
        if (other := names.get(service.name)) is not None:
            raise ServiceError(
                f"two services are named {service.name!r}: {other.source} and {service.source}. {_ADVICE}"
            )
        names[service.name] = service
        for step_type in service.step_types:
            if (other := step_types.get(step_type)) is not None:
                raise ServiceError(
                    f"two services execute {step_type}: {other.source} and {service.source}. {_ADVICE}"
                )
            step_types[step_type] = service


_ADVICE = "Leave one out; `--no-services` leaves out the packaged ones"


def runners_of(
    service: Service,
    bus: Bus,
    workspace: Workspace,
    *,
    topology: str,
    topologies: Sequence[str] = TOPOLOGIES,
    slots: int,
    forks: ForkServer | None = None,
    grace: timedelta = DRAIN,
    worker_id: str | None = None,
    records: Records | None = None,
    mode: Mode | None = None,
    pool: str | None = None,
    chaos: Chaos | None = None,
    instruments: ServiceInstruments | None = None,
) -> list[ServiceRunner]:
    """Slots are split between the subscriptions, at least one to each, so that none waits for another.

    A process-isolated service has as many as processes, whatever `slots` says. With `mode` only that
    one is served, by all slots; with `pool` only the tenants that have it.
    """
    slots = slots_of(service, slots)
    subscriptions = [
        each for each in subscriptions_of(service.name, topology, pool) if mode in (None, each[1])
    ]
    if not subscriptions:
        raise ModeNotApartError(
            f"--mode {mode} needs lanes that are filtered by mode, and LUCIUS_LANE_TOPOLOGY is"
            f" {topology}: set it to filtered, here and for the server, or leave --mode out"
        )
    return [
        ServiceRunner(
            service,
            bus,
            workspace,
            slots=max(1, (slots - number + len(subscriptions) - 1) // len(subscriptions)),
            forks=forks,
            grace=grace,
            worker_id=worker_id,
            records=records,
            topics=every_directive_topic(topologies=topologies),
            filters=directive_filters(service.step_types, taken, pool),
            subscription=name,
            chaos=chaos,
            instruments=instruments,
        )
        for number, (name, taken) in enumerate(subscriptions)
    ]


# Which services run here: the packaged ones, or those that a team names.

PACKAGED_SERVICES: Final = (Ocr, Embedding, Sis)


def packaged_services(settings: Settings) -> list[Service]:
    """OCR, EMBEDDING and SIS."""
    check_libraries()
    return [Ocr(), Embedding(), Sis(answer_endpoint(settings))]


def check_libraries() -> None:
    """What the packaged services compute with comes with an extra."""
    if names := missing():
        raise LibrariesMissingError(
            f"the services OCR, EMBEDDING and SIS are not installed ({', '.join(names)} missing): pip"
            " install 'lucius[services]', or run workers of your own, which pull"
            " their directives from POST /v1/services/{service}/directives:pull"
        )


def packaged_names() -> list[str]:
    """As `lucius service run` takes them."""
    check_libraries()
    return [f"{kind.__module__}:{kind.__qualname__}" for kind in PACKAGED_SERVICES]


def answer_endpoint(settings: Settings) -> AnswerEndpoint | None:
    if not settings.answer_url:
        return None
    if not settings.answer_model:
        raise UnsupportedError(
            "LUCIUS_ANSWER_URL is set: name the model in LUCIUS_ANSWER_MODEL too"
        )
    key = settings.answer_key.get_secret_value()
    return AnswerEndpoint(settings.answer_url, settings.answer_model, key)


def named_service(name: str, settings: Settings) -> Service:
    """`package.module:Name`, a Service class or instance."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UnsupportedError(f"{name} does not name a service: it takes MODULE:NAME")
    try:
        found = getattr(importlib.import_module(module), attribute)
        made = _made(found, settings) if isinstance(found, type) else found
    except UnsupportedError:
        raise
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise UnsupportedError(f"{name} cannot be loaded: {reason}") from error
    if not isinstance(made, Service):
        raise UnsupportedError(f"{name} is not a lucius.platform.Service")
    return made


def _made(kind: type, settings: Settings) -> Any:
    """A packaged service as `lucius up` has it; others are made without arguments."""
    if kind in PACKAGED_SERVICES:
        return next(each for each in packaged_services(settings) if type(each) is kind)
    return kind()


SLOTS: Final = 64
"""Steps that each embedded service runs at once."""


class ServiceHost:
    """`incarnation`: what their worker ids begin with; a later process knows by it who has died."""

    def __init__(
        self,
        services: Sequence[Service],
        bus: Bus,
        workspace: Workspace,
        *,
        topology: str,
        topologies: Sequence[str],
        grace: timedelta,
        incarnation: str,
        instruments: ServiceInstruments,
    ) -> None:
        check_services(services)
        self._grace = grace
        self._instruments = instruments
        self._forks = [ForkServer()]
        self.runners = [
            runner
            for service in services
            for runner in runners_of(
                service,
                bus,
                workspace,
                topology=topology,
                topologies=topologies,
                slots=SLOTS,
                forks=self._forks_of(service),
                grace=grace,
                worker_id=f"{incarnation}{service.name}",
                instruments=instruments,
            )
        ]

    def _forks_of(self, service: Service) -> ForkServer:
        """A child knows all that its fork server was told: so secrets are told to one of their own."""
        if service.private:
            self._forks.append(ForkServer())
            return self._forks[-1]
        return self._forks[0]

    async def start(self) -> None:
        for runner in self.runners:
            await runner.start()

    async def drain(self) -> None:
        """Nothing new begins; what runs ends, or is given back. The log says what is waited for."""
        say_stopping(self.running, self._grace)
        await asyncio.gather(*(runner.stop() for runner in self.runners))

    async def close(self) -> None:
        for forks in self._forks:
            await forks.close()

    def measure(self) -> None:
        """Slots are looked at when somebody asks; the rest is counted as it happens."""
        cells: dict[tuple[str, ...], float] = {}
        for runner in self.runners:
            health = runner.health()
            for state, number in (("busy", health.running), ("free", health.free_slots)):
                cells[runner.name, state] = cells.get((runner.name, state), 0.0) + number
        self._instruments.slots.show(cells)

    @property
    def running(self) -> int:
        """Steps at work."""
        return sum(runner.health().running for runner in self.runners)

    @property
    def left_behind(self) -> int:
        """Executions that would not end, once they were drained."""
        return sum(runner.left_behind for runner in self.runners)

    @property
    def trouble(self) -> str | None:
        """They live as long as this process."""
        return None

    def whose(self, task: asyncio.Task[Any] | None) -> str | None:
        """The service that the task belongs to."""
        return next((runner.name for runner in self.runners if runner.serves(task)), None)

    def listen(self, commit: Committed) -> None:
        """Services that live here hear of a cancellation directly, others by notices or heartbeats.

        A lease that the ledger has ended ends here too: nothing more is committed under it.
        """
        before, job = commit.before, commit.job
        if before is None or not self.runners:
            return
        for lease_id in ended_leases(commit):
            for runner in self.runners:
                runner.end_lease(lease_id)
        if job.cancel_requested_at is not None and before.state != job.state:
            for runner in self.runners:
                runner.request_cancel(job.job_id)


def ended_leases(commit: Committed) -> list[str]:
    """Leases that were the current ones and are no more: replaced, or their job has ended without them.

    During a backoff the last attempt is still the current one: its late success counts.
    """
    if commit.before is None:
        return []
    job, pairs = commit.job, zip(commit.before.steps, commit.job.steps, strict=True)
    return [
        old.execution.exec_id
        for old, new in pairs
        if old.execution is not None
        and new.execution is not None
        and old.state is not StepState.SUCCEEDED
        and new.state is not StepState.SUCCEEDED
        and (new.execution.exec_id != old.execution.exec_id or job.terminal)
    ]
