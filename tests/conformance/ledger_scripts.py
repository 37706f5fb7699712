"""Random lives of jobs: any input at any moment, through the real core, saved when it changed anything."""

from collections.abc import Callable
from datetime import timedelta

from lucius.core.decide import decide
from lucius.core.inputs import (
    BusRestarted,
    CancelRequested,
    DirectiveUnclaimed,
    Dismissed,
    EffectSettled,
    EntryReleased,
    HeartbeatReceived,
    Input,
    LeaseReturned,
    PauseRequested,
    PublishConfirmed,
    PublishRefused,
    ResultReceived,
    ResultStatus,
    ResumeRequested,
    Ticked,
)
from lucius.core.job import Fault, Job
from lucius.core.plan import RetryPolicy, StepPlan
from tests.conformance.jobs import at, make, name_of
from tests.conformance.ledger_registry import Harness

BROKEN = Fault("BROKEN", "the page cannot be read")
SHORT = RetryPolicy(max_attempts=2, lease=timedelta(seconds=60))
STAGED = (
    StepPlan("left", "OCR", "left", 0, SHORT),
    StepPlan("right", "OCR", "right", 0, SHORT),
    StepPlan("last", "SIS", "last", 1, SHORT),
)
WORLDS = (
    make("plain"),
    make("released", "tenant_b", released=True),
    make("staged", steps=STAGED, callback_urls=("https://client.example/done",)),
)
Script = list[tuple[int, str, int]]

BOUND: dict[str, Callable[[str, int, str], Input]] = {
    "confirm": PublishConfirmed,
    "refuse": lambda step, attempt, lease: PublishRefused(step, attempt, lease, BROKEN),
    "unclaimed": DirectiveUnclaimed,
    "heartbeat": lambda step, attempt, lease: HeartbeatReceived(step, attempt, lease, "w-1"),
    "return": LeaseReturned,
    "succeed": lambda step, attempt, lease: ResultReceived(
        step, attempt, lease, ResultStatus.SUCCEEDED, "s3://bucket/out"
    ),
    "fail": lambda step, attempt, lease: ResultReceived(
        step, attempt, lease, ResultStatus.FAILED_RETRY, fault=BROKEN
    ),
    "give up": lambda step, attempt, lease: ResultReceived(
        step, attempt, lease, ResultStatus.FAILED_FINAL, fault=BROKEN
    ),
}
UNBOUND: dict[str, Callable[[], Input]] = {
    "tick": Ticked,
    "restart": lambda: BusRestarted("w-"),
    "cancel": CancelRequested,
    "cancel now": lambda: CancelRequested(immediate=True),
    "pause": PauseRequested,
    "resume": ResumeRequested,
    "dismiss": Dismissed,
    "settle": lambda: EffectSettled("notify-0", performed=True),
}
ACTIONS = ("release", *BOUND, *UNBOUND)


def input_of(job: Job, action: str, seconds: int) -> Input | None:
    """None where the action has nothing to act on."""
    if action in UNBOUND:
        return UNBOUND[action]()
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        if action == "release" and step.ready:
            return EntryReleased(planned.step_id, name_of(job.job_id, job.version, seconds))
        if action in BOUND and step.out:
            run = step.executions[-1]
            return BOUND[action](planned.step_id, run.attempt_no, run.exec_id)
    return None


async def played(on: Harness, job: Job, action: str, seconds: int) -> Job:
    received = input_of(job, action, seconds)
    if received is None:
        return job
    on.clock += seconds / 10
    decision = decide(job, received, at(on.clock))
    return await on.save(decision) if decision.changed else job
