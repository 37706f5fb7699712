"""Who is at work: workers by service, as their pulls, ACKs, heartbeats and results tell.

It listens to commits and to the engine, and asks nothing. What it knows is in memory; `published_stats.py`
writes it down now and then, for other processes and for the next start.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from heapq import nlargest
from typing import Any, Final

from lucius.core.effects import Committed, Event, Outcome
from lucius.core.inputs import AckReceived, HeartbeatReceived, Input
from lucius.core.job import AbortReason, Execution, Job, Step, StepState
from lucius.core.text import failure_of
from lucius.operations.facts import refused_replies
from lucius.operations.service_rules import OF_THE_JOB, SILENT
from lucius.operations.service_stats import (
    MOST_WORKERS,
    ServiceStats,
    WorkerStats,
    read_record,
    record_of,
)
from lucius.ports.lanes import Lanes

_NO_ATTEMPT: Final = (
    *(AbortReason.CANCELLED, AbortReason.RETURNED, AbortReason.PROCESS_DIED),
    AbortReason.PUBLISH_REFUSED,
)
"""Ends of a lease that say nothing about the service."""
_SPOKEN: Final = (None, AbortReason.RESULT_FAILED, AbortReason.RETURNED)
"""What a lease is, or ends, by the word of its worker."""
_UNHEARD: Final = AbortReason.ACK_TIMEOUT
MOST_RECORDED: Final = 1000
"""Workers in the note of a process, those that were seen last: a row of Azure tables holds 1 MB."""
LONGEST_NAME: Final = 128
LONGEST_VERSION: Final = 64
UNNAMED: Final = "(unnamed)"
"""Workers that do not say who they are."""


class Workers:
    """Of this process: `listen` to its commits; `took_up`, `forgot` and `applied` come from the engine."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self.services: dict[str, ServiceStats] = {}
        self.changed = False
        """Since `published_stats` last wrote it down."""
        self._running: dict[str, tuple[str, str, int]] = {}
        """Leases at work on the owned shards: service, worker and shard."""
        self._progress: dict[str, str] = {}
        """What the worker of such a lease said last."""
        self._untaken: dict[tuple[str, int], tuple[str, datetime, int]] = {}
        """Steps that are sent again, as nobody took them: service, since when, shard. Of the owned shards."""
        self.refused: dict[str, datetime] = {}
        """By service, when a reply was refused for its token last."""
        self._said: dict[str, tuple[int | None, str | None]] = {}

    # -- what is heard -----------------------------------------------------------------------

    def listen(self, commit: Committed) -> None:
        """Of every commit: it does nothing where no attempt began, went on or ended."""
        if commit.before is None:
            return
        job, earlier = commit.job, commit.before.steps
        taken_back = any("by" in (event.data or ()) for event in commit.decision.events)
        if job.noted != commit.before.noted:
            self._mark_refused(job, commit.decision.events)
        for index in commit.steps:
            was, step = earlier[index], job.steps[index]
            if was.state is StepState.FAILED_RETRY:
                self._untaken.pop((job.job_id, index), None)
            if step.executions is not was.executions:
                self._moved(job, index, was, step, taken_back=taken_back)
                self._mark_untaken(job, index, step)

    def _moved(self, job: Job, index: int, earlier: Step, step: Step, *, taken_back: bool) -> None:
        """`taken_back`: by an operator, so no worker has spoken."""
        for run in step.executions:
            if run.started_at is None and run.finished_at is None:
                continue
            was = None
            for known in earlier.executions:
                if known.exec_id == run.exec_id:
                    was = known
            if was is not run:
                self._heard(job, index, step, run, was, taken_back=taken_back)

    def _heard(
        self,
        job: Job,
        index: int,
        step: Step,
        run: Execution,
        was: Execution | None,
        *,
        taken_back: bool,
    ) -> None:
        service, at = job.plan.steps[index].service, job.updated_at
        if run.started_at is not None and run.reason in _SPOKEN and not taken_back:
            self._seen(service, run.lease_owner or UNNAMED, at)
        self._follow(job, service, step, run)
        if run.finished_at is not None and (was is None or was.finished_at is None):
            seen = self.services.get(service)
            if seen is not None and run.reason not in _NO_ATTEMPT:
                began = run.started_at
                took = (run.finished_at - began).total_seconds() if began is not None else None
                seen.ended(at, failed=run.reason is not None, took=took)
                self._streak(seen, job, index, step, failed=run.reason is not None)

    def _streak(
        self, seen: ServiceStats, job: Job, index: int, step: Step, *, failed: bool
    ) -> None:
        if not failed:
            seen.succeeded(job.updated_at)
        elif step.fault is not None and step.fault.code not in (*SILENT, *OF_THE_JOB):
            planned = job.plan.steps[index]
            failure = failure_of(planned.step_id, planned.service, step.fault)
            retried = step.state is StepState.FAILED_RETRY
            seen.failed(job.updated_at, failure, job.job_id, job.tenant_id, retried=retried)

    def _mark_untaken(self, job: Job, index: int, step: Step) -> None:
        if step.state is not StepState.FAILED_RETRY or step.executions[-1].reason is not _UNHEARD:
            return
        shard = job.plan.shard
        if shard in self._lanes.owned:
            since = step.updated_at or job.updated_at
            self._untaken[job.job_id, index] = (job.plan.steps[index].service, since, shard)

    def _mark_refused(self, job: Job, events: Iterable[Event]) -> None:
        for step_id, at in refused_replies(events).items():
            index = job.plan.index_of(step_id)
            if index is not None:
                self.refused[job.plan.steps[index].service] = at

    def pulled(
        self, service: str, worker_id: str, at: datetime, slots: int | None, version: str | None
    ) -> None:
        """A worker asked for directives, whether or not there were any."""
        stats = self._seen(service, worker_id, at)
        said = version[:LONGEST_VERSION] if version else None
        stats.slots, stats.version = slots or stats.slots, said or stats.version
        stats.pulls = True

    def applied(self, received: Input, outcome: Outcome) -> None:
        """What a worker says of itself with its ACK, and of its work with a heartbeat."""
        if type(received) is HeartbeatReceived:
            if received.progress and received.lease_id in self._running:
                self._progress[received.lease_id] = received.progress
        elif type(received) is AckReceived and received.slots is not None and received.worker_id:
            if len(self._said) > MOST_WORKERS * 20:
                self._said.clear()
            version = received.version[:LONGEST_VERSION] if received.version else None
            self._said[received.worker_id[:LONGEST_NAME]] = (received.slots, version)

    def took_up(self, job: Job) -> None:
        """An owned job as it was found: its leases are at work, or are no more."""
        for index, (planned, step) in enumerate(zip(job.plan.steps, job.steps, strict=True)):
            run = step.execution
            if run is not None:
                self._mark_untaken(job, index, step)
                self._follow(job, planned.service, step, run)
                if run.started_at is not None and run.lease_owner is not None:
                    self._seen(planned.service, run.lease_owner, run.started_at)

    def forgot(self, shards: Collection[int]) -> None:
        """Other processes follow what is at work there."""
        for lease_id in [
            lease for lease, (_, _, shard) in self._running.items() if shard in shards
        ]:
            del self._running[lease_id]
            self._progress.pop(lease_id, None)
        for place in [place for place, (_, _, shard) in self._untaken.items() if shard in shards]:
            del self._untaken[place]

    def _seen(self, service: str, worker_id: str, at: datetime) -> WorkerStats:
        self.changed, worker_id = True, worker_id[:LONGEST_NAME]
        seen = self.services.get(service)
        if seen is None:
            seen = self.services[service] = ServiceStats(at, at)
        stats = seen.workers.get(worker_id)
        if stats is None or at < stats.last_seen:
            return seen.see(worker_id, at)
        stats.last_seen = seen.last_seen = at
        return stats

    def _follow(self, job: Job, service: str, step: Step, run: Execution) -> None:
        shard = job.plan.shard
        if step.state is not StepState.IN_PROGRESS or run is not step.executions[-1]:
            self._running.pop(run.exec_id, None)
            self._progress.pop(run.exec_id, None)
        elif run.exec_id not in self._running and shard in self._lanes.owned:
            owner = (run.lease_owner or UNNAMED)[:LONGEST_NAME]
            self._running[run.exec_id] = (service, owner, shard)

    def drop(self, worker_id: str) -> bool:
        """Forget a worker that is gone. Whether it was known."""
        found = [seen for seen in self.services.values() if seen.workers.pop(worker_id, None)]
        self.changed = self.changed or bool(found)
        return bool(found)

    # -- what is known -----------------------------------------------------------------------

    def recall(self, record: Mapping[str, Any]) -> None:
        """What an earlier process of this installation has seen."""
        for service, seen in read_record(record).items():
            for stats in seen.workers.values():
                stats.running = 0
            self.services.setdefault(service, seen)

    def record(self) -> dict[str, Any]:
        """All of it as JSON data, for others to read."""
        noted = self._latest()
        return {
            service: record_of(seen, {name for of, name in noted if of == service})
            for service, seen in self.known().items()
        }

    def _latest(self) -> set[tuple[str, str]]:
        """By service, the workers that were seen last: as many as a note has room for."""
        every = (
            (stats.last_seen, service, worker_id)
            for service, seen in self.services.items()
            for worker_id, stats in seen.workers.items()
        )
        return {(service, worker_id) for _, service, worker_id in nlargest(MOST_RECORDED, every)}

    def progress(self, lease_id: str) -> str | None:
        """How far the worker of this lease said it is, if it told this process."""
        return self._progress.get(lease_id)

    def untaken(self) -> dict[str, datetime]:
        """Services with steps that are sent again because nobody took them, and since when."""
        found: dict[str, datetime] = {}
        for service, since, _ in self._untaken.values():
            found[service] = min(found.get(service, since), since)
        return found

    def known(self) -> dict[str, ServiceStats]:
        """With what is at work now, and what workers said of themselves."""
        for seen in self.services.values():
            for worker_id, stats in seen.workers.items():
                stats.running = 0
                if worker_id in self._said:
                    stats.slots, stats.version = self._said[worker_id]
        for service, worker_id, _ in self._running.values():
            if (known := self.services.get(service)) is not None:
                known.see(worker_id, known.first_seen).running += 1
        return self.services
