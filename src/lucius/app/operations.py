"""What is known beside the jobs, wired: who is at work, and what is paused."""

import os
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from lucius.app.engine import Outbox
from lucius.core.effects import Outcome
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.core.plan import FIRST_SHARD, OUTBOX
from lucius.engine.loop import Listener
from lucius.engine.observer import Observer
from lucius.operations.deliveries import Deliveries
from lucius.operations.failures import FailureStore
from lucius.operations.published_stats import PublishedStats
from lucius.operations.redrives import RedrivePlans
from lucius.operations.refusals import Refusals
from lucius.operations.services import KnownServices, OwnServices, PausedServices
from lucius.operations.why import ProcessState, RulesDiagnoser
from lucius.operations.workers import Workers
from lucius.ports.config import Catalog
from lucius.ports.engine import Engine
from lucius.ports.lanes import FixedLanes, Lanes
from lucius.ports.ledger import Ledger


class WorkersObserved(Observer):
    """Tells the register of workers what the engine tells."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def applied(self, received: Input, outcome: Outcome) -> None:
        self._workers.applied(received, outcome)

    def took_up(self, job: Job) -> None:
        self._workers.took_up(job)

    def forgot(self, lanes: Collection[int]) -> None:
        self._workers.forgot(lanes)


@dataclass(frozen=True, slots=True)
class Listening:
    """What the engine is built with: it is asked, and told, by the engine."""

    workers: Workers
    paused: PausedServices
    failures: FailureStore
    refusals: Refusals
    deliveries: Deliveries
    alone: bool

    @property
    def observers(self) -> tuple[Observer, ...]:
        return (WorkersObserved(self.workers),)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        listening = (self.workers, self.failures, self.refusals, self.deliveries)
        return tuple(each.listen for each in listening)


def listening(ledger: Ledger, lanes: Lanes, now: Callable[[], datetime]) -> Listening:
    alone = isinstance(lanes, FixedLanes)
    shared_records = ledger.shared_records()
    paused = PausedServices(shared_records, now=now, alone=alone)
    failures = FailureStore(shared_records, now=now)
    return Listening(Workers(lanes), paused, failures, Refusals(now), Deliveries(), alone)


@dataclass(frozen=True, slots=True)
class Insight:
    """What is built on the engine."""

    services: KnownServices
    published_stats: PublishedStats
    diagnoser: RulesDiagnoser
    redrives: RedrivePlans


def insight(
    activity: Listening,
    ledger: Ledger,
    outbox: Outbox,
    *,
    lanes: Lanes,
    catalog: Callable[[], Catalog],
    troubles: Callable[[], Mapping[str, str]],
    process: ProcessState,
    now: Callable[[], datetime],
    engine: str = OUTBOX,
    engine_port: Engine | None = None,
    own: Callable[[], OwnServices] = OwnServices,
) -> Insight:
    """`engine`: that of new jobs. The owner of its first lane runs redrive plans.

    `engine_port`: who moves jobs, where that is not the outbox alone. `own`: services of this process.
    """
    first_shard = FIRST_SHARD[engine]
    name = "one" if activity.alone else f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
    published_stats = PublishedStats(
        ledger.shared_records(),
        activity.workers,
        name,
        unclaimed=outbox.unclaimed.services,
        troubles=troubles,
        refusals=activity.refusals,
        deliveries=activity.deliveries,
        now=now,
        alone=activity.alone,
    )
    services = KnownServices(
        activity.workers,
        published_stats,
        activity.paused,
        catalog=catalog,
        engine=engine_port or outbox.engine,
        own=own,
        now=now,
    )
    diagnoser = RulesDiagnoser(
        ledger,
        services,
        published_stats,
        lanes=lanes,
        limited=outbox.windows.limited,
        catalog=catalog,
        process=process,
        now=now,
    )
    redrives = RedrivePlans(
        ledger.shared_records(), outbox.engine, runs=lambda: first_shard in lanes.owned, now=now
    )
    return Insight(services, published_stats, diagnoser, redrives)
