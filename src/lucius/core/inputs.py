"""The facts that can move a job. `kind` names the column of the transition table that a fact belongs to."""

from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from lucius.contract.words import ResultStatus as ResultStatus
from lucius.core.job import Fault
from lucius.core.record import record


class Kind(StrEnum):
    SUBMITTED = "submitted"
    ATTEMPT = "attempt"
    ENTRY_RELEASED = "entry_released"
    PUBLISH_CONFIRMED = "publish_confirmed"
    PUBLISH_REFUSED = "publish_refused"
    DIRECTIVE_UNCLAIMED = "directive_unclaimed"
    ACK = "ack"
    HEARTBEAT = "heartbeat"
    LEASE_RETURNED = "lease_returned"
    SUCCESS = "success"
    FAILURE_RETRYABLE = "failure_retryable"
    FAILURE_FINAL = "failure_final"
    TICK = "tick"
    BUS_RESTARTED = "bus_restarted"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    EFFECT_SETTLED = "effect_settled"
    DISMISSED = "dismissed"
    REDRIVEN = "redriven"
    RESEND = "resend"


RESULT_KIND = {
    ResultStatus.SUCCEEDED: Kind.SUCCESS,
    ResultStatus.FAILED_RETRY: Kind.FAILURE_RETRYABLE,
    ResultStatus.FAILED_FINAL: Kind.FAILURE_FINAL,
}


@record
class AttemptRequested:
    """The workflow of a job asks for the next attempt of this step, under a lease that it proposes."""

    kind: ClassVar[Kind] = Kind.ATTEMPT
    step_id: str
    attempt_no: int
    lease_id: str


@record
class EntryReleased:
    """The dispatch window has room for the held entry of this step; `lease_id` is for its attempt.

    An entry that has a proposed lease keeps it. `told`: whoever asked for the attempt hears of the
    release in the answer, so that its workflow needs no signal.
    """

    kind: ClassVar[Kind] = Kind.ENTRY_RELEASED
    step_id: str
    lease_id: str
    told: bool = False


@record
class PublishConfirmed:
    kind: ClassVar[Kind] = Kind.PUBLISH_CONFIRMED
    step_id: str
    attempt_no: int
    lease_id: str


@record
class PublishRefused:
    """The bus said no. A publish whose outcome is unknown is not this: it is repeated."""

    kind: ClassVar[Kind] = Kind.PUBLISH_REFUSED
    step_id: str
    attempt_no: int
    lease_id: str
    fault: Fault


@record
class DirectiveUnclaimed:
    """The bus has it, and no service is subscribed to take it."""

    kind: ClassVar[Kind] = Kind.DIRECTIVE_UNCLAIMED
    step_id: str
    attempt_no: int
    lease_id: str


@record
class AckReceived:
    kind: ClassVar[Kind] = Kind.ACK
    step_id: str
    attempt_no: int
    lease_id: str
    worker_id: str | None = None
    timestamp: str | None = None
    slots: int | None = None
    version: str | None = None
    """What the worker says of itself: how many steps it takes at once, and which version it is."""


@record
class HeartbeatReceived:
    """`progress`: how far the worker is, in its own words. No decision depends on it."""

    kind: ClassVar[Kind] = Kind.HEARTBEAT
    step_id: str
    attempt_no: int
    lease_id: str
    worker_id: str | None = None
    timestamp: str | None = None
    progress: str | None = None


@record
class LeaseReturned:
    """A service that drains gives its lease back (RELEASE on the wire). Twice a step that is free.

    `by`: an operator takes it back from a worker that is gone, and `reason` says why.
    """

    kind: ClassVar[Kind] = Kind.LEASE_RETURNED
    step_id: str
    attempt_no: int
    lease_id: str
    worker_id: str | None = None
    timestamp: str | None = None
    by: str | None = None
    reason: str | None = None


@record
class ResultReceived:
    step_id: str
    attempt_no: int
    lease_id: str
    status: ResultStatus
    result_ref: Any = None
    fault: Fault | None = None
    worker_id: str | None = None
    timestamp: str | None = None

    @property
    def kind(self) -> Kind:
        return RESULT_KIND[self.status]


@record
class Ticked:
    """Time has passed. Every sweeper is this one input.

    `publish_now`: an operator asks for it, so what is pending does not wait out its publish backoff.
    `queued`: leases whose directives wait behind work that their service is busy with. Their ACK is
    not overdue: the service is not silent.
    `deaf_until`: until then nobody could be heard, because the process stood still or its clock jumped.
    A lease that ran out by then begins anew.
    `on_hold`: leases that are with a service which someone has paused. They do not run out.
    `asked`: the timer of a workflow says so. Without it, the steps of a job that has a workflow stay as they
    are. `told`: the workflow hears of what follows in the answer.
    """

    kind: ClassVar[Kind] = Kind.TICK
    publish_now: bool = False
    queued: frozenset[str] = frozenset()
    deaf_until: datetime | None = None
    on_hold: frozenset[str] = frozenset()
    asked: bool = False
    told: bool = False


@record
class BusRestarted:
    """A volatile bus lost what it held; services whose worker id begins with `lost_owner` died with it.

    `kept`: the bus is durable, and only the services died.
    """

    kind: ClassVar[Kind] = Kind.BUS_RESTARTED
    lost_owner: str
    kept: bool = False


@record
class CancelRequested:
    """As every order: `by` is who gives it, and `reason` why, if they say so. The event shows both."""

    kind: ClassVar[Kind] = Kind.CANCEL
    immediate: bool = False
    by: str | None = None
    reason: str | None = None


@record
class PauseRequested:
    kind: ClassVar[Kind] = Kind.PAUSE
    by: str | None = None
    reason: str | None = None


@record
class ResumeRequested:
    """Goes on at once: a backoff that began before the pause does not count any more."""

    kind: ClassVar[Kind] = Kind.RESUME
    by: str | None = None
    reason: str | None = None


@record
class RetryRequested:
    """An operator does not want to wait: the backoffs of the job are over."""

    kind: ClassVar[Kind] = Kind.RETRY
    by: str | None = None
    reason: str | None = None


@record
class EffectSettled:
    """An owed effect was performed, or failed and is to be tried again unless `final`."""

    kind: ClassVar[Kind] = Kind.EFFECT_SETTLED
    owed_id: str
    performed: bool
    final: bool = False
    reason: str | None = None


@record
class Dismissed:
    """An operator takes a failed job out of the dead-letter view."""

    kind: ClassVar[Kind] = Kind.DISMISSED
    by: str | None = None
    reason: str | None = None


@record
class ResendRequested:
    """The webhooks of a job that has ended are sent again, also those that were given up."""

    kind: ClassVar[Kind] = Kind.RESEND
    by: str | None = None
    reason: str | None = None


@record
class Redriven:
    """A new job has taken over from this failed one."""

    kind: ClassVar[Kind] = Kind.REDRIVEN
    job_id: str


OrderInput = (
    CancelRequested
    | PauseRequested
    | ResumeRequested
    | RetryRequested
    | Dismissed
    | ResendRequested
)
"""What somebody asks for."""
Callback = AckReceived | HeartbeatReceived | LeaseReturned | ResultReceived


@record
class ReplyRefused:
    """A reply whose callback token is missing or wrong. It is recorded, and moves nothing."""

    reply: Callback
    message: str

    @property
    def kind(self) -> Kind:
        return self.reply.kind


Bound = Callback | AttemptRequested | PublishConfirmed | PublishRefused | DirectiveUnclaimed
"""Speaks of one attempt under one lease."""
Input = (
    AttemptRequested
    | EntryReleased
    | PublishConfirmed
    | PublishRefused
    | DirectiveUnclaimed
    | Callback
    | ReplyRefused
    | Ticked
    | BusRestarted
    | OrderInput
    | EffectSettled
    | Redriven
)
