"""The words of the contract: states of the machines, modes, outcomes. Whoever speaks of one imports it here.

It needs the standard library alone, because the core is built on it.
"""

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


class JobStatus(StrEnum):
    """Where a job is, in coarser words that follow from its state."""

    QUEUED = "QUEUED"
    IN_PROGRESS = "IN_PROGRESS"
    PAUSED = "PAUSED"
    SUCCEEDED = "SUCCEEDED"
    FAILED_FINAL = "FAILED_FINAL"
    CANCELLED = "CANCELLED"


class StepStatus(StrEnum):
    """Where a step is, in coarser words that follow from its state."""

    PENDING = "PENDING"
    INITIATED = "INITIATED"
    PROCESSING = "PROCESSING"
    FAILED_RETRY = "FAILED_RETRY"
    SUCCEEDED = "SUCCEEDED"
    FAILED_FINAL = "FAILED_FINAL"
    CANCELLED = "CANCELLED"


class EntryStatus(StrEnum):
    """How far a directive is on its way to the bus."""

    PENDING = "PENDING"
    SENT = "SENT"
    FAILED_FINAL = "FAILED_FINAL"


class Mode(StrEnum):
    DEFAULT = "DEFAULT"
    BURST = "BURST"


class DecisionSource(StrEnum):
    REQUEST = "REQUEST"
    TENANT_CONFIG = "TENANT_CONFIG"
    GLOBAL_CONFIG = "GLOBAL_CONFIG"


class Outcome(StrEnum):
    APPLIED = "applied"
    ALREADY = "already"
    """What was asked for already holds."""
    DUPLICATE = "duplicate"
    LATE = "late"
    STALE = "stale"
    REFUSED = "refused"
    """The reply does not prove that it comes from the worker of its attempt."""
    REJECTED = "rejected"


class ResultStatus(StrEnum):
    SUCCEEDED = "SUCCEEDED"
    FAILED_RETRY = "FAILED_RETRY"
    FAILED_FINAL = "FAILED_FINAL"


class PlanState(StrEnum):
    """How far a redrive plan is."""

    CANARY = "CANARY"
    """A few are redriven, and the rest waits for how they end."""
    RUNNING = "RUNNING"
    DONE = "DONE"
    STOPPED = "STOPPED"
    """Too many failed again, or someone stopped it. What it has redriven goes on."""


TERMINAL_JOB = (JobState.SUCCEEDED, JobState.FAILED_FINAL, JobState.CANCELLED)
LIVE_JOB = tuple(state for state in JobState if state not in TERMINAL_JOB)
UNSUCCESSFUL_JOB = (JobState.FAILED_FINAL, JobState.CANCELLED)
PAUSED_JOB = (JobState.PAUSING, JobState.PAUSED)
DELIVERING_JOB = tuple(
    state for state in LIVE_JOB if state not in (JobState.QUEUED, JobState.PAUSED)
)
"""A step of such a job may be with a service."""
RUNNING_JOB = (JobState.QUEUED, JobState.DISPATCHING, JobState.IN_PROGRESS)
