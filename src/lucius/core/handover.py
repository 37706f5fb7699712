"""What a process saves of a job whose lane it does not own: whatever is owed falls to the owner, at once."""

from dataclasses import replace
from datetime import datetime

from lucius.core.effects import Decision, PublishDirective, StartWorkflow
from lucius.core.job import Job, Owed, Step
from lucius.core.retry import PUBLISH_GRACE, due_at


def left_to_owner(before: Job | None, decision: Decision) -> Decision:
    """The same decision with nothing to perform. The owner's next tick performs it.

    An entry that has become ready waits for that tick, so the owner takes it into its queue.
    """
    if not decision.changed:
        return replace(decision, effects=())
    job, now = decision.job, decision.job.updated_at
    publish = {
        effect.step_id for effect in decision.effects if isinstance(effect, PublishDirective)
    }
    owed_by = (e for e in decision.effects if not isinstance(e, PublishDirective | StartWorkflow))
    others = {effect.owed_id for effect in owed_by}
    earlier = before.steps if before is not None else (None,) * len(job.steps)
    steps = tuple(
        _unpublished(step, now) if planned.step_id in publish else _held(was, step, now)
        for planned, was, step in zip(job.plan.steps, earlier, job.steps, strict=True)
    )
    owed = tuple(_due(each, now) if each.owed_id in others else each for each in job.owed)
    left = replace(job, steps=steps, owed=owed)
    return replace(decision, job=replace(left, due_at=due_at(left)), effects=())


def _held(was: Step | None, step: Step, now: datetime) -> Step:
    if not step.ready or step.entry is None or (was is not None and was.ready):
        return step
    return replace(step, entry=replace(step.entry, ready_at=now))


def _unpublished(step: Step, now: datetime) -> Step:
    """The entry as if its publish was asked for long ago, so that the owner's tick asks for it again."""
    if step.entry is None or step.entry.asked_at is None:
        return step
    return replace(step, entry=replace(step.entry, asked_at=now - PUBLISH_GRACE))


def _due(owed: Owed, now: datetime) -> Owed:
    """The owed effect as due now, without the try that nobody made."""
    return replace(owed, attempts=max(0, owed.attempts - 1), next_at=now)
