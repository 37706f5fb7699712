"""What an engine must do after a decision is saved, the events it records, and the decision itself."""

from dataclasses import field
from datetime import datetime

from lucius.contract.words import Outcome as Outcome
from lucius.core.job import Job, Owed
from lucius.core.plan import Json
from lucius.core.record import record


@record
class PublishDirective:
    """Owed while the entry is `RELEASED`; repeating it is safe, the message id stays the same."""

    step_id: str
    attempt_no: int
    lease_id: str


@record
class NotifyClient:
    """Tell one of the client's completion webhooks how the job ended."""

    owed_id: str
    url: str


@record
class LinkRedrive:
    """Tell the job that this one was redriven from that it has been."""

    owed_id: str
    job_id: str


@record
class StartWorkflow:
    """Start the workflow of the job, unless it runs."""

    owed_id: str


@record
class SignalWorkflow:
    """Tell the workflow of the job how it stands. `signal` names what has happened, to which step."""

    owed_id: str
    signal: str
    step_id: str


Effect = PublishDirective | NotifyClient | LinkRedrive | StartWorkflow | SignalWorkflow


def effect_of(owed: Owed) -> Effect | None:
    """None: a newer version of LUCIUS knows what it is, and performs it."""
    match owed.kind:
        case "notify_client":
            return NotifyClient(owed.owed_id, owed.target)
        case "link_redrive":
            return LinkRedrive(owed.owed_id, owed.target)
        case "start_workflow":
            return StartWorkflow(owed.owed_id)
        case "signal_workflow":
            signal, _, step_id = owed.target.partition(" ")
            return SignalWorkflow(owed.owed_id, signal, step_id)
        case _:
            return None


@record
class Event:
    """One line of a job's history. `moves` are `machine subject FROM->TO`, in the order they happened."""

    seq: int
    type: str
    at: datetime
    step_id: str | None = None
    attempt_no: int | None = None
    lease_id: str | None = None
    moves: tuple[str, ...] = ()
    data: Json | None = field(default=None, compare=False)
    extra: Json | None = field(default=None, compare=False)


@record
class Decision:
    """`changed` is false where nothing is to be saved; `code` says why an input was rejected."""

    job: Job
    outcome: Outcome
    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    changed: bool = True
    code: str | None = None


@record
class Committed:
    """A decision that is durable: what a process tells its listeners, once, as one value.

    `before` is the job as it was, none for a new one. `owned`: this process owns the lane of the job.
    """

    before: Job | None
    decision: Decision
    owned: bool
    steps: tuple[int, ...]
    """Places of the steps that are not what they were."""

    @property
    def job(self) -> Job:
        return self.decision.job


def committed(before: Job | None, decision: Decision, *, owned: bool) -> Committed:
    """Compare the steps. A step that did not change is the same object."""
    steps = decision.job.steps
    if before is None:
        return Committed(None, decision, owned, tuple(range(len(steps))))
    pairs = enumerate(zip(before.steps, steps, strict=True))
    changed = tuple([place for place, (was, step) in pairs if step is not was])
    return Committed(before, decision, owned, changed)
