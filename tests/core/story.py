"""Tells the story of one job, input by input, for tests that follow a single path."""

from datetime import datetime, timedelta

from lucius.core.decide import decide, submit
from lucius.core.effects import Decision, Effect, Event, Outcome
from lucius.core.inputs import (
    AckReceived,
    EntryReleased,
    HeartbeatReceived,
    Input,
    LeaseReturned,
    PublishConfirmed,
    PublishRefused,
    ResultReceived,
    ResultStatus,
    Ticked,
)
from lucius.core.job import Fault, Job, JobState, Step, StepState
from lucius.core.plan import Plan
from tests.core.explore.configurations import small_plan
from tests.core.explore.invariants import check_job
from tests.core.explore.world import NOW

REFUSED = Fault("REFUSED", "the bus said no")
FAILED = Fault("OCR_UNREADABLE", "nothing to read")
START = NOW


class Story:
    """Holds the job, the clock and all that came of it. Every stored job is checked as in the walk."""

    def __init__(self, plan: Plan | None = None, *, job: Job | None = None) -> None:
        self.now = START
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        if job is not None:
            self.job = job
            return
        self._take(submit(plan or small_plan(0, 1, attempts=3), self.now))

    def _take(self, decision: Decision) -> Decision:
        self.last = decision
        self.job = decision.job
        self.events.extend(decision.events)
        self.effects = list(decision.effects)
        check_job(self.job)
        return decision

    def give(self, received: Input) -> Outcome:
        return self._take(decide(self.job, received, self.now)).outcome

    # -- what is usual -----------------------------------------------------------------------

    def lease(self, step_id: str = "a") -> tuple[str, int, str]:
        last = self.step(step_id).executions[-1]
        return step_id, last.attempt_no, last.exec_id

    def release(self, step_id: str = "a") -> Outcome:
        number = len(self.step(step_id).executions) + 1
        return self.give(EntryReleased(step_id, f"{step_id}{number}"))

    def confirm(self, step_id: str = "a") -> Outcome:
        return self.give(PublishConfirmed(*self.lease(step_id)))

    def refuse(self, step_id: str = "a") -> Outcome:
        return self.give(PublishRefused(*self.lease(step_id), REFUSED))

    def ack(self, step_id: str = "a", worker: str = "worker-1") -> Outcome:
        return self.give(AckReceived(*self.lease(step_id), worker_id=worker))

    def heartbeat(self, step_id: str = "a") -> Outcome:
        return self.give(HeartbeatReceived(*self.lease(step_id)))

    def give_back(self, step_id: str = "a") -> Outcome:
        return self.give(LeaseReturned(*self.lease(step_id)))

    def succeed(self, step_id: str = "a", ref: object = "result") -> Outcome:
        return self.give(ResultReceived(*self.lease(step_id), ResultStatus.SUCCEEDED, ref))

    def fail(self, step_id: str = "a", *, final: bool = False) -> Outcome:
        status = ResultStatus.FAILED_FINAL if final else ResultStatus.FAILED_RETRY
        return self.give(ResultReceived(*self.lease(step_id), status, fault=FAILED))

    def give_back_after_release(self, lease_id: str, step_id: str = "a") -> Outcome:
        self.give(EntryReleased(step_id, lease_id))
        return self.give_back(step_id)

    def sent(self, step_id: str = "a") -> "Story":
        self.release(step_id)
        self.confirm(step_id)
        return self

    def started(self, step_id: str = "a") -> "Story":
        self.sent(step_id).ack(step_id)
        return self

    # -- time --------------------------------------------------------------------------------

    def tick_due(self) -> Outcome:
        """Wait for the moment the job says, and not longer."""
        assert self.job.due_at is not None
        self.now = max(self.now, self.job.due_at)
        return self.give(Ticked())

    def wait(self, **length: float) -> "Story":
        self.now += timedelta(**length)
        return self

    def tick(self) -> Outcome:
        return self.give(Ticked())

    # -- reading -----------------------------------------------------------------------------

    def step(self, step_id: str = "a") -> Step:
        index = self.job.plan.index_of(step_id)
        assert index is not None
        return self.job.steps[index]

    def states(self) -> tuple[JobState, *tuple[StepState, ...]]:
        return (self.job.state, *(step.state for step in self.job.steps))

    @property
    def due_in(self) -> timedelta:
        due: datetime | None = self.job.due_at
        assert due is not None
        return due - self.now
