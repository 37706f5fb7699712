"""Nudges: jobs that were moved here and whose lanes other processes own. Their owners are told to look.

A nudge may be lost. What was left to do is due at once, so the owner finds it a little later by itself.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NoReturn

from lucius.core.effects import Committed
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.core.job import Job
from lucius.core.routing import reply_topic
from lucius.core.states import JobState
from lucius.core.wire import nudge
from lucius.engines.outbox.observer import Incident, Observer
from lucius.ports.bus import Bus, Message

log = logging.getLogger("lucius.nudges")


class Nudges:
    def __init__(self, bus: Bus, observer: Observer) -> None:
        self._bus = bus
        self._observer = observer
        self._jobs: dict[str, Job] = {}
        """By job: its newest version."""
        self._timers: set[str] = set()
        """Jobs whose workflow has a timer that fired."""
        self._some = asyncio.Event()

    def listen(self, commit: Committed) -> None:
        """A job of somebody else's lane was moved here, and not only its lease extended."""
        if not commit.owned and commit.decision.events and commit.job.state is not JobState.QUEUED:
            self.put(commit.job)

    def put(self, job: Job, *, timer: bool = False) -> None:
        self._jobs[job.job_id] = job
        if timer:
            self._timers.add(job.job_id)
        self._some.set()

    async def run(self) -> NoReturn:
        while True:
            while not self._jobs:
                self._some.clear()
                await self._some.wait()
            by_lane: dict[int, list[Message]] = {}
            for job in self._jobs.values():
                lane, timer = job.plan.routing.lane, job.job_id in self._timers
                message = Message(*nudge(job.job_id, job.version, lane, timer=timer))
                by_lane.setdefault(lane, []).append(message)
            self._jobs.clear()
            self._timers.clear()
            await asyncio.gather(*(self._send(lane, each) for lane, each in by_lane.items()))

    async def _send(self, lane: int, messages: Sequence[Message]) -> None:
        try:
            await self._bus.publish(reply_topic(lane), messages)
        except (BusUnavailableError, PublishRefusedError) as error:
            self._observer.incident(Incident.NUDGE_LOST, "bus")
            log.info("owners will find %d jobs by themselves: %s", len(messages), error)
