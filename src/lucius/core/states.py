"""The states of the four machines, and the coarser words that clients read beside them."""

from enum import StrEnum

from lucius.contract.states import DELIVERING_JOB as DELIVERING_JOB
from lucius.contract.states import LIVE_JOB as LIVE_JOB
from lucius.contract.states import PAUSED_JOB as PAUSED_JOB
from lucius.contract.states import RUNNING_JOB as RUNNING_JOB
from lucius.contract.states import TERMINAL_JOB as TERMINAL_JOB
from lucius.contract.states import UNSUCCESSFUL_JOB as UNSUCCESSFUL_JOB
from lucius.contract.states import AbortReason as AbortReason
from lucius.contract.states import ExecutionState as ExecutionState
from lucius.contract.states import JobState as JobState
from lucius.contract.states import Phase as Phase
from lucius.contract.states import StepState as StepState


class EntryState(StrEnum):
    """An outbox entry. Clients read `HELD` and `RELEASED` as `PENDING`."""

    HELD = "HELD"
    RELEASED = "RELEASED"
    SENT = "SENT"
    FAILED_FINAL = "FAILED_FINAL"


TERMINAL_STEP = (StepState.SUCCEEDED, StepState.FAILED_FINAL, StepState.CANCELLED)
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
