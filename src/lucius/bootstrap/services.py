"""The runners of a platform service: one, or one for each mode where the lanes are filtered by it."""

from collections.abc import Sequence
from datetime import timedelta

from lucius.core.errors import LuciusError
from lucius.core.plan import Mode
from lucius.core.routing import TOPOLOGIES, every_directive_topic, subscriptions_of
from lucius.platform import Service, ServiceError, ServiceRunner
from lucius.platform.chaos import Chaos
from lucius.platform.isolation.forks import ForkServer
from lucius.platform.measures import ServiceInstruments
from lucius.platform.records import Records
from lucius.platform.service import check_service, slots_of
from lucius.ports.bus import Bus, directive_filters
from lucius.ports.workspace import Workspace

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
