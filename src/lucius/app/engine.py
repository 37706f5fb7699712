"""The outbox engine, wired. Who reads this from top to bottom knows who calls whom.

What only keeps something comes first, then the engine that writes to it, then those that act on it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from lucius.engine.admission.ingress import Ingress
from lucius.engine.cache import JobCache
from lucius.engine.clock import LoopTime, Tasks
from lucius.engine.dispatcher import Decorate, Dispatcher, Notify, Signaller
from lucius.engine.inbox import Inbox
from lucius.engine.loop import EngineLoop, Listener, OwedEffects
from lucius.engine.metrics import EngineMetrics, at_work_elsewhere, backlog_of
from lucius.engine.notices import Notices, Nudges, Tokens, UnclaimedReporter, UnclaimedServices
from lucius.engine.observer import Observer, Observers, Outage, log_moves
from lucius.engine.outbox import OutboxEngine, Waits
from lucius.engine.ownership import LostServices, Ownership
from lucius.engine.releases import HeldBack, Pulls, ReadyQueues, Releases
from lucius.engine.replies import Guard, ReplyConsumer
from lucius.engine.ticks import Alarm, Ticks
from lucius.engine.windows import Windows
from lucius.ports.bus import Bus
from lucius.ports.lanes import FixedLanes, LaneRows, Lanes
from lucius.ports.ledger import Ledger, Limits
from lucius.ports.workflows import Workflows


class Reconciler:
    """All that happens by itself on the owned lanes. `prepare` it, then `run` it until it is cancelled."""

    def __init__(
        self,
        ownership: Ownership,
        dispatcher: Dispatcher,
        releases: Releases,
        ticks: Ticks,
        replies: ReplyConsumer,
        unclaimed: UnclaimedReporter,
        nudges: Nudges,
        notices: Notices,
    ) -> None:
        self._ownership = ownership
        self._unclaimed = unclaimed
        self._replies = replies
        told = (nudges, notices)
        self._parts = (dispatcher, releases, ticks, replies, unclaimed, *told, ownership)

    async def prepare(self) -> None:
        """Make the topology, take up what is out, and fill the ready queues."""
        await self._replies.prepare()
        await self._unclaimed.prepare()
        await self._ownership.prepare()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts:
                tasks.create_task(part.run())


CACHE_BYTES: Final = 256 * 2**20
"""Memory for jobs that are kept at hand; what does not fit is read from the ledger again."""


@dataclass(frozen=True, slots=True)
class Outbox:
    """The parts of the engine that the rest of the process uses."""

    engine: OutboxEngine
    metrics: EngineMetrics
    windows: Windows
    ready: ReadyQueues
    releases: Releases
    owed: OwedEffects
    tasks: Tasks
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
    cache_bytes: int = CACHE_BYTES,
    now: Callable[[], datetime],
    limits: Callable[[str], Limits],
    lanes: Lanes,
    topologies: Sequence[str],
    listeners: Sequence[Listener],
    owed: OwedEffects,
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
    by_mode = topologies[0] == "filtered"
    windows = Windows(LoopTime(), by_mode=by_mode, elsewhere=partial(at_work_elsewhere, lanes))
    ready = ReadyQueues(ledger, windows.workers)
    inbox, alarm, cache = Inbox(), Alarm(), JobCache(cache_bytes)
    waits = Waits(lambda job: job.plan.shard in lanes.owned)
    unclaimed = UnclaimedServices()
    metrics = EngineMetrics(ledger, windows, lanes=lanes, now=now)
    tasks, nudges = Tasks(metrics), Nudges(bus, metrics, lanes)
    releases = Releases(inbox, windows, ready, tasks, lanes, held_back)
    notices = Notices(bus, metrics, tokens, here)
    together = isinstance(lanes, FixedLanes)
    loop = EngineLoop(
        inbox,
        ledger,
        cache,
        releases,
        owed,
        tasks,
        lanes=lanes,
        now=now,
        observer=Observers((metrics, alarm, waits, *observers)),
        listeners=(
            releases.listen,
            alarm.listen,
            nudges.listen,
            waits.listen,
            metrics.listen,
            log_moves,
            unclaimed.listen,
            lost.listen,
            notices.listen,
            *listeners,
        ),
    )
    engine = OutboxEngine(
        inbox,
        loop,
        ledger,
        ingress,
        cache,
        releases,
        waits,
        metrics.rows if together else partial(backlog_of, lanes),
        now=now,
        limits=limits,
    )
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
    outage = Outage("ledger", "what is due waits", logging.getLogger("lucius.reconciler"), metrics)
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
        ticks,
        outage,
        lanes=lanes,
        observer=metrics,
        guard=guard,
        engine_name=engine_name,
    )

    async def backlog() -> LaneRows:
        """Of the owned lanes, for others to read. What waits there and is not known here is taken up."""
        before = metrics.held
        rows = await metrics.by_lane()
        if metrics.held is not before:
            releases.notice(metrics.held)
        return rows

    ownership = Ownership(
        engine,
        ledger,
        bus,
        releases,
        alarm,
        lost,
        tasks,
        outage,
        lanes=lanes,
        backlog=backlog,
    )
    reconciler = Reconciler(
        ownership,
        dispatcher,
        releases,
        ticks,
        replies,
        reporter,
        nudges,
        notices,
    )
    pulls = Pulls(releases, windows)
    return Outbox(
        engine,
        metrics,
        windows,
        ready,
        releases,
        owed,
        tasks,
        pulls,
        dispatcher,
        ticks,
        replies,
        nudges,
        notices,
        reconciler,
        unclaimed,
    )
