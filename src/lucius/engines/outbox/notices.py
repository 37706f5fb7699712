"""Tells workers over the bus that the job of their step is being cancelled, or that their lease has ended.

A notice may be lost. Whoever beats its heart over the bus afterwards is told again, as one that beats it
over HTTP is answered.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from lucius.core.effects import Committed, Outcome
from lucius.core.errors import BusError
from lucius.core.inputs import HeartbeatReceived
from lucius.core.job import Execution, Job, Step
from lucius.core.notices import CANCEL, LEASE_ENDED, notice
from lucius.core.states import AbortReason, ExecutionState
from lucius.engines.outbox.observer import Incident, Observer
from lucius.ports.bus import Bus, Message

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
        except BusError as error:
            self._observer.incident(Incident.NOTICE_LOST, "bus")
            log.info("%s is not told of %s: %s", worker, message.message_id, error)


def _at_work(step: Step) -> bool:
    return step.execution is not None and step.execution.state is ExecutionState.IN_PROGRESS
