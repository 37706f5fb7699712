"""The outbox engine, wired. Who reads this from top to bottom knows who calls whom.

What only keeps something comes first, then the engine that writes to it, then those that act on it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from lucius.admission.ingress import Ingress
from lucius.engines.outbox.alarm import Alarm
from lucius.engines.outbox.clock import LoopTime
from lucius.engines.outbox.dispatcher import Decorate, Dispatcher, Notify
from lucius.engines.outbox.engine import A_TURN, Listener, OutboxEngine
from lucius.engines.outbox.held_back import HeldBack, Resumption
from lucius.engines.outbox.lost_services import LostServices
from lucius.engines.outbox.metrics import EngineMetrics, backlog_of
from lucius.engines.outbox.move_log import log_moves
from lucius.engines.outbox.notices import Notices, Tokens
from lucius.engines.outbox.nudges import Nudges
from lucius.engines.outbox.observer import Observer, Observers, Outage
from lucius.engines.outbox.owed import OwedEffects
from lucius.engines.outbox.ownership import Ownership
from lucius.engines.outbox.pace import Pace
from lucius.engines.outbox.pulls import Pulls
from lucius.engines.outbox.pump import Pump
from lucius.engines.outbox.ready import ReadyQueues
from lucius.engines.outbox.reconciler import Reconciler
from lucius.engines.outbox.releases import Releases
from lucius.engines.outbox.replies import Guard, ReplyConsumer
from lucius.engines.outbox.signaller import Signaller
from lucius.engines.outbox.tasks import Tasks
from lucius.engines.outbox.ticks import Ticks
from lucius.engines.outbox.unclaimed import UnclaimedReporter, UnclaimedServices
from lucius.engines.outbox.windows import Windows
from lucius.ports.bus import Bus
from lucius.ports.lanes import FixedLanes, Lanes
from lucius.ports.ledger import Ledger, Limits
from lucius.ports.workflows import Workflows


@dataclass(frozen=True, slots=True)
class Outbox:
    """The parts of the engine that the rest of the process uses."""

    engine: OutboxEngine
    metrics: EngineMetrics
    windows: Windows
    ready: ReadyQueues
    releases: Releases
    owed: OwedEffects
    pace: Pace
    tasks: Tasks
    pump: Pump
    pulls: Pulls
    dispatcher: Dispatcher
    ticks: Ticks
    replies: ReplyConsumer
    nudges: Nudges
    notices: Notices
    reconciler: Reconciler
    unclaimed: UnclaimedServices


def outbox(
    ledger: Ledger,
    bus: Bus,
    ingress: Ingress,
    *,
    now: Callable[[], datetime],
    limits: Callable[[str], Limits],
    lanes: Lanes,
    topologies: Sequence[str],
    listeners: Sequence[Listener],
    owed: OwedEffects,
    cache_bytes: int,
    look: timedelta,
    decorate: Decorate,
    tokens: Tokens,
    notify: Notify,
    guard: Guard,
    lost: LostServices,
    here: str,
    workflows: Workflows | None,
    engine_name: str | None,
    held_back: HeldBack,
    observers: Sequence[Observer],
) -> Outbox:
    """Nothing has a default: whoever forgets a collaborator hears of it from the type checker.

    `decorate` completes a directive before it is published; `guard` checks a reply before it counts.
    `tokens` gives the callback tokens of an attempt; `notify` calls the webhook of a client.
    `held_back`: services that nothing is released to. `observers` hear what the metrics hear.
    `lost`: services of this installation that have died. `here`: how ids of workers begin that hear of
    notices without the bus.
    `workflows`: of jobs on Temporal. `engine_name`: the engine whose replies come here; None: all, and
    workflows are started here, too.
    """
    windows = Windows(LoopTime(), by_mode=topologies[0] == "filtered")
    ready = ReadyQueues(ledger)
    releases = Releases(windows, ready, lanes, held_back)
    alarm, pace = Alarm(), Pace(A_TURN)
    unclaimed = UnclaimedServices()
    metrics = EngineMetrics(ledger, windows, lanes=lanes, now=now)
    tasks, nudges = Tasks(metrics), Nudges(bus, metrics)
    notices = Notices(bus, metrics, tokens, here)
    together = isinstance(lanes, FixedLanes)
    engine = OutboxEngine(
        ledger,
        ingress,
        releases,
        owed,
        alarm,
        nudges,
        metrics.rows if together else partial(backlog_of, lanes),
        now=now,
        limits=limits,
        lanes=lanes,
        pace=pace,
        observer=Observers((metrics, *observers)),
        listeners=(
            metrics.listen,
            log_moves,
            unclaimed.listen,
            lost.listen,
            notices.listen,
            *listeners,
        ),
        cache_bytes=cache_bytes,
    )
    pump = Pump(engine, releases, windows, ready, tasks)
    signaller = (
        Signaller(engine, workflows, starts=engine_name is None, observer=metrics)
        if workflows is not None
        else None
    )
    dispatcher = Dispatcher(
        engine,
        bus,
        owed,
        releases,
        windows,
        tasks,
        observer=metrics,
        decorate=decorate,
        notify=notify,
        signaller=signaller,
    )
    reporter = UnclaimedReporter(
        engine, bus, unclaimed, lanes=lanes, topologies=topologies, now=now, observer=metrics
    )
    outage = Outage("ledger", "what is due waits", logging.getLogger("lucius.reconciler"))
    ticks = Ticks(
        engine,
        ledger,
        windows,
        alarm,
        outage,
        lanes=lanes,
        now=now,
        observer=metrics,
        every=look,
        held_back=held_back,
    )
    replies = ReplyConsumer(
        engine,
        bus,
        tasks,
        notices,
        outage,
        nudged=ticks.look,
        lanes=lanes,
        pace=pace,
        observer=metrics,
        guard=guard,
        engine_name=engine_name,
    )
    ownership = Ownership(
        engine,
        ledger,
        bus,
        releases,
        ready,
        alarm,
        lost,
        tasks,
        outage,
        lanes=lanes,
        backlog=metrics.by_lane,
        now=now,
        observer=metrics,
    )
    reconciler = Reconciler(
        ownership,
        dispatcher,
        pump,
        ticks,
        replies,
        reporter,
        nudges,
        notices,
        Resumption(held_back, releases),
    )
    pulls = Pulls(releases, windows, pump)
    return Outbox(
        engine,
        metrics,
        windows,
        ready,
        releases,
        owed,
        pace,
        tasks,
        pump,
        pulls,
        dispatcher,
        ticks,
        replies,
        nudges,
        notices,
        reconciler,
        unclaimed,
    )
