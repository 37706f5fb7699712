"""The states of the four machines, and the coarser words that clients read beside them."""

from enum import StrEnum


class JobState(StrEnum):
    QUEUED = "QUEUED"
    DISPATCHING = "DISPATCHING"
    IN_PROGRESS = "IN_PROGRESS"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED_FINAL = "FAILED_FINAL"
    CANCELLED = "CANCELLED"


class StepState(StrEnum):
    PENDING = "PENDING"
    DISPATCHING = "DISPATCHING"
    AWAITING_ACK = "AWAITING_ACK"
    IN_PROGRESS = "IN_PROGRESS"
    FAILED_RETRY = "FAILED_RETRY"
    SUCCEEDED = "SUCCEEDED"
    FAILED_FINAL = "FAILED_FINAL"
    CANCELLED = "CANCELLED"


class ExecutionState(StrEnum):
    LEASED = "LEASED"
    IN_PROGRESS = "IN_PROGRESS"
    COMMITTED = "COMMITTED"
    DONE = "DONE"
    ABORTED = "ABORTED"


class EntryState(StrEnum):
    """An outbox entry. Clients read `HELD` and `RELEASED` as `PENDING`."""

    HELD = "HELD"
    RELEASED = "RELEASED"
    SENT = "SENT"
    FAILED_FINAL = "FAILED_FINAL"


class Phase(StrEnum):
    """The coarse view of a job, computed from its executions and its plan alone."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class AbortReason(StrEnum):
    PUBLISH_REFUSED = "publish_refused"
    ACK_TIMEOUT = "ack_timeout"
    LEASE_EXPIRED = "lease_expired"
    RESULT_FAILED = "result_failed"
    RETURNED = "returned"
    PROCESS_DIED = "process_died"
    CANCELLED = "cancelled"
    SLA = "sla"


TERMINAL_JOB = (JobState.SUCCEEDED, JobState.FAILED_FINAL, JobState.CANCELLED)
TERMINAL_STEP = (StepState.SUCCEEDED, StepState.FAILED_FINAL, StepState.CANCELLED)
LIVE_JOB = tuple(state for state in JobState if state not in TERMINAL_JOB)
UNSUCCESSFUL_JOB = (JobState.FAILED_FINAL, JobState.CANCELLED)
RUNNING_JOB = (JobState.QUEUED, JobState.DISPATCHING, JobState.IN_PROGRESS)
RUNNING_EXECUTION = (ExecutionState.LEASED, ExecutionState.IN_PROGRESS)
COMMITTED_EXECUTION = (ExecutionState.COMMITTED, ExecutionState.DONE)
PRESUMED_DEAD = (AbortReason.ACK_TIMEOUT, AbortReason.LEASE_EXPIRED)
"""Aborts that rest on silence: a success that arrives before the next lease disproves them."""

JOB_STATUS = {
    JobState.DISPATCHING: "QUEUED",
    JobState.PAUSING: "IN_PROGRESS",
    JobState.CANCELLING: "IN_PROGRESS",
}
STEP_STATUS = {
    StepState.DISPATCHING: "INITIATED",
    StepState.AWAITING_ACK: "INITIATED",
    StepState.IN_PROGRESS: "PROCESSING",
}
ENTRY_STATUS = {EntryState.HELD: "PENDING", EntryState.RELEASED: "PENDING"}


def job_status(state: JobState) -> str:
    return JOB_STATUS.get(state, state.value)


def step_status(state: StepState) -> str:
    return STEP_STATUS.get(state, state.value)


def entry_status(state: EntryState) -> str:
    return ENTRY_STATUS.get(state, state.value)
