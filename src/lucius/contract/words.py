"""The words of the contract: states of the machines, modes, outcomes. Whoever speaks of one imports it here.

It needs the standard library alone, because the core is built on it.
"""

import re
from enum import StrEnum
from typing import Any, Final

# Numbers and words of the envelope, and of replies. Its fields are those of `models.commands.Command`.

JsonObject = dict[str, Any]

SCHEMA_VERSIONS: Final = ("v1", "1", "1.0")
"""Spellings of the one envelope there is. They are kept as given, and the first is hashed for each."""
MODES: Final = ("DEFAULT", "SAFE", "BURST")
MAX_NAME: Final = 128
"""Characters of a tenant id."""
MAX_ESCAPED: Final = 256
"""Characters of a tenant id as storage writes it."""
MAX_TEXT: Final = 256
"""Characters of every other short field."""
MAX_URI: Final = 2048
MAX_CALLBACK_URLS: Final = 8
MAX_ATTEMPT_NO: Final = 2**31 - 1
MAX_SLOTS: Final = 65_536
"""Steps that one worker takes at once."""
ERROR_CODE: Final = r"[A-Z0-9_]{1,64}"
"""Codes are shown beside jobs of others, so they are words of a service, and never free text."""
UNCLASSIFIED: Final = "STEP_FAILED"
"""The code of a failure that names none."""
TRACEPARENT: Final = r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
"""The one rule of what a `traceparent` is, as a pattern for the whole text."""
REASON: Final = "x-lucius-reason"
"""In the schema of a field: what a client is told whose value does not fit."""


# Addresses as they may be shown: without user, password, and the values of their query.

_USERINFO: Final = re.compile(r"//[^/@\s]*@")
_QUERY_VALUE: Final = re.compile(r"([?&][^=&#\s]*=)[^&#\s,]+")


def without_credentials(text: str) -> str:
    """Any value of a query may be a key, whatever its name is. Text that is no address stays as it is."""
    if "//" not in text:
        return text
    return _QUERY_VALUE.sub(r"\1***", _USERINFO.sub("//***@", text))


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
