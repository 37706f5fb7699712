"""A directive on its way: there is room for it, the bus has it or refused it, nobody takes it."""

from lucius.core import sequence
from lucius.core.effects import Decision, Outcome
from lucius.core.inputs import DirectiveUnclaimed, EntryReleased, PublishConfirmed, PublishRefused
from lucius.core.job import Step
from lucius.core.states import AbortReason, StepState
from lucius.core.turn import Turn, speaks_for


def released(turn: Turn, received: EntryReleased) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    if index is None or not turn.steps[index].ready or sequence.doomed(turn):
        return turn.unchanged(Outcome.REJECTED, "NOT_RELEASABLE")
    turn.release(index, turn.entry(index).lease_id or received.lease_id)
    turn.about(index)
    turn.told = received.told
    return turn.decision(Outcome.APPLIED)


def published(turn: Turn, received: PublishConfirmed | PublishRefused) -> Decision:
    index = turn.job.plan.index_of(received.step_id)
    if index is None or not _unsent(turn.steps[index], received):
        return turn.unchanged(Outcome.ALREADY)
    turn.about(index)
    if isinstance(received, PublishConfirmed):
        turn.sent(index)
    else:
        turn.explain(received.fault)
        turn.fail_attempt(index, AbortReason.PUBLISH_REFUSED, received.fault)
        sequence.advance(turn)
    return turn.decision(Outcome.APPLIED)


def _unsent(step: Step, received: PublishConfirmed | PublishRefused) -> bool:
    dispatching = step.state is StepState.DISPATCHING
    return dispatching and step.out and speaks_for(received, step.execution)


def unclaimed(turn: Turn, received: DirectiveUnclaimed) -> Decision:
    """Written down for people, once an attempt. A service may be starting: the ACK clock still rules."""
    index = turn.job.plan.index_of(received.step_id)
    if index is None:
        return turn.unchanged(Outcome.REJECTED, "UNKNOWN_STEP")
    step = turn.steps[index]
    if not step.unacked or not speaks_for(received, step.execution):
        return turn.unchanged(Outcome.ALREADY)
    if step.executions[-1].unclaimed_at is not None:
        return turn.unchanged(Outcome.DUPLICATE)
    turn.about(index)
    turn.data = {"service": turn.plan(index).service, "topic": turn.job.plan.routing.topic}
    turn.own_execution(index).unclaimed_at = turn.now
    return turn.decision(Outcome.APPLIED)
