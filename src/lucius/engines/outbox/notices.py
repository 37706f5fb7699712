"""What others are told over the bus: workers that their lease is over, owners of lanes that a job was moved.

Both may be lost. Whoever beats its heart over the bus afterwards is told again, and an owner finds by itself
what is due.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from lucius.core.effects import Committed, Outcome
from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.core.inputs import HeartbeatReceived
from lucius.core.job import Execution, Job, Step
from lucius.core.notices import CANCEL, LEASE_ENDED, notice
from lucius.core.routing import reply_topic
from lucius.core.states import AbortReason, ExecutionState, JobState
from lucius.core.wire import nudge
from lucius.engines.outbox.observer import Incident, Observer
from lucius.ports.bus import Bus, Message
from lucius.ports.lanes import Lanes

log = logging.getLogger("lucius.notices")
AT_ONCE: Final = 64
"""Notices that are sent at the same time."""

Tokens = Callable[[str, str, str, int, str], Sequence[str]]
"""Tenant, job, step, attempt and lease: the callback token under every key that may have signed it."""


class Notices:
    """`here`: what the ids of workers begin with that this process has started. They are told directly."""

    def __init__(self, bus: Bus, observer: Observer, tokens: Tokens, here: str) -> None:
        self._bus = bus
        self._observer = observer
        self._tokens = tokens
        self._here = here
        self._owed: list[tuple[str, Message]] = []
        self._some = asyncio.Event()

    def listen(self, commit: Committed) -> None:
        """Hears of every commit: a cancelled job's workers are told once."""
        before, job = commit.before, commit.job
        if before is None or job.cancel_requested_at is None:
            return
        asked_before = before.cancel_requested_at is not None
        for planned, old, new in zip(job.plan.steps, before.steps, job.steps, strict=True):
            execution = new.execution
            if execution is None:
                continue
            if _at_work(new) and not (asked_before and _at_work(old)):
                self._put(CANCEL, job, planned.step_id, execution)
            elif _at_work(old) and execution.reason is AbortReason.CANCELLED:
                self._put(LEASE_ENDED, job, planned.step_id, execution)

    def answer(self, received: HeartbeatReceived, outcome: Outcome, job: Job) -> None:
        """What a heartbeat over HTTP would be answered with; nothing where all is well."""
        worker = received.worker_id
        if worker is None or outcome is Outcome.REJECTED:
            return
        attempt = (job.job_id, received.step_id, received.attempt_no, received.lease_id)
        if outcome is Outcome.STALE:
            self._tell(LEASE_ENDED, worker, job.tenant_id, attempt)
        elif job.cancel_requested_at is not None or job.terminal:
            self._tell(CANCEL, worker, job.tenant_id, attempt)

    def _put(self, kind: str, job: Job, step_id: str, execution: Execution) -> None:
        if execution.lease_owner is not None:
            attempt = (job.job_id, step_id, execution.attempt_no, execution.exec_id)
            self._tell(kind, execution.lease_owner, job.tenant_id, attempt)

    def _tell(
        self, kind: str, worker: str, tenant_id: str, attempt: tuple[str, str, int, str]
    ) -> None:
        if not worker.startswith(self._here):
            tokens = self._tokens(tenant_id, *attempt)
            self._owed.append((worker, Message(*notice(kind, attempt, tokens))))
            self._some.set()

    async def run(self) -> NoReturn:
        while True:
            while not self._owed:
                self._some.clear()
                await self._some.wait()
            now, self._owed = self._owed[:AT_ONCE], self._owed[AT_ONCE:]
            await asyncio.gather(*(self._send(worker, message) for worker, message in now))

    async def _send(self, worker: str, message: Message) -> None:
        try:
            await self._bus.tell(worker, message)
        except Exception as error:  # the address is a worker's own word: it concerns no other
            self._observer.incident(Incident.NOTICE_LOST, "bus")
            log.info("%s is not told of %s: %r", worker, message.message_id, error)


def _at_work(step: Step) -> bool:
    return step.execution is not None and step.execution.state is ExecutionState.IN_PROGRESS


nudge_log = logging.getLogger("lucius.nudges")


class Nudges:
    def __init__(self, bus: Bus, observer: Observer, lanes: Lanes) -> None:
        self._bus = bus
        self._observer = observer
        self._lanes = lanes
        self._jobs: dict[str, Job] = {}
        """By job: its newest version."""
        self._timers: set[str] = set()
        """Jobs whose workflow has a timer that fired."""
        self._some = asyncio.Event()

    def listen(self, commit: Committed) -> None:
        """A job of somebody else's lane was moved here, and not only its lease extended.

        So it is where the lane was lost during the save: its new owner may not know.
        """
        job = commit.job
        if commit.decision.events and job.state is not JobState.QUEUED:
            if job.plan.desk not in self._lanes.owned:
                self.put(job)

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
            nudge_log.info("owners will find %d jobs by themselves: %s", len(messages), error)
