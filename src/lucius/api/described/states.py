"""Properties that take one of a few words, and which."""

from collections.abc import Iterable
from typing import Final

from lucius.contract.causes import Severity
from lucius.core.effects import Outcome
from lucius.core.plan import OUTBOX, TEMPORAL, DecisionSource, Mode
from lucius.core.states import (
    EntryState,
    ExecutionState,
    JobState,
    Phase,
    StepState,
    entry_status,
    job_status,
    step_status,
)
from lucius.ports.redrives import PlanState


def _once(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(str(word) for word in words))


_JOB: Final = _once(JobState)
_REPLIED: Final = _once((Outcome.APPLIED, Outcome.DUPLICATE, Outcome.LATE))
_ORDERED: Final = _once((Outcome.APPLIED, Outcome.ALREADY))
WORDS: Final[dict[str, list[str]]] = {
    "JobShape.state": _JOB,
    "JobShape.status": _once(map(job_status, JobState)),
    "JobShape.phase": _once(Phase),
    "JobShape.mode": _once(Mode),
    "JobShape.engine": [OUTBOX, TEMPORAL],
    "JobShape.outcome": _ORDERED,
    "SubmittedShape.state": _JOB,
    "RedrivenShape.state": _JOB,
    "StepShape.state": _once(StepState),
    "StepShape.status": _once(map(step_status, StepState)),
    "StepShape.resolved_mode": _once(Mode),
    "StepShape.decision_source": _once(DecisionSource),
    "OutboxShape.state": _once(map(entry_status, EntryState)),
    "ExecutionShape.state": _once(ExecutionState),
    "ExecutionShape.status": _once(ExecutionState),
    "ExecutionsShape.phase": _once(Phase),
    "DirectiveShape.type": ["DIRECTIVE"],
    "DirectiveShape.mode": _once(Mode),
    "BacklogRowShape.mode": _once(Mode),
    "WhyShape.severity": [each.name for each in Severity],
    "JobWhyShape.severity": [each.name for each in Severity],
    "RedrivePlanShape.state": _once(PlanState),
    "ServiceOrderShape.outcome": _ORDERED,
    "CallbackShape.outcome": _REPLIED,
    "HeartbeatShape.outcome": _REPLIED,
    "AnswerShape.outcome": _REPLIED,
    "ReplyOutcomeShape.outcome": _REPLIED,
    "HealthShape.status": ["ok"],
    "ReadinessShape.status": ["ready"],
}
