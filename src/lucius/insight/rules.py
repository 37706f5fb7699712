"""The rules that name a cause: one small function each, tried in the order of the tables below.

They are pure: a rule looks at facts and answers a finding, or None where it does not apply.
"""

from collections.abc import Sequence
from typing import Final

from lucius.core.job import Job
from lucius.core.states import StepState
from lucius.insight.facts import Clues, Facts, Situation
from lucius.insight.job_rules import (
    JobCheck,
    cancelled,
    cancelling,
    clock_off,
    failed,
    lane_unowned,
    not_ticked,
    outage_of,
    output_lost,
    paused_job,
    redriven,
    succeeded,
)
from lucius.insight.service_rules import (
    NO_FAULT,
    degraded,
    fails_alike,
    never_seen,
    not_subscribed,
    paused,
    replies_refused,
    silent,
)
from lucius.insight.step_rules import (
    StepCheck,
    at_work,
    awaits_ack,
    busy,
    held_by_limit,
    protocol_gone,
    publish_refused,
    waits_for_retry,
)
from lucius.ports.diagnosis import Diagnosis, Evidence

_LEDGER: Final = ("ledger", "LEDGER_AWAY", "the ledger does not take writes", "lucius ledger info")
_BUS: Final = ("bus", "BUS_AWAY", "the broker does not answer", "lucius outbox retry")
_ENGINE: Final = ("reconciler", "ENGINE_DOWN", "a part of LUCIUS is down", "lucius why")
OUTAGES: Final = (_LEDGER, _ENGINE, _BUS)

JOB_RULES: Final[tuple[JobCheck, ...]] = (
    output_lost,
    redriven,
    succeeded,
    cancelled,
    failed,
    *(outage_of(*each) for each in OUTAGES),
    clock_off,
    lane_unowned,
    cancelling,
    paused_job,
    not_ticked,
)
"""The first that applies is the cause."""

STEP_RULES: Final[tuple[StepCheck, ...]] = (
    paused,
    publish_refused,
    fails_alike,
    protocol_gone,
    not_subscribed,
    replies_refused,
    never_seen,
    silent,
    held_by_limit,
    degraded,
    waits_for_retry,
    at_work,
    busy,
    awaits_ack,
)
"""For each step that is not finished; the worst of them is the cause."""


def diagnose(job: Job, facts: Facts, clues: Clues) -> Diagnosis:
    for rule in JOB_RULES:
        if (found := rule(job, facts, clues)) is not None:
            return found
    findings = [
        found
        for index, step in enumerate(job.steps)
        if step.out or step.held or step.state is StepState.FAILED_RETRY
        if (found := _of_step(Situation(job, index, facts, clues))) is not None
    ]
    worst = max(findings, key=lambda finding: finding.severity, default=None)
    if worst is None:
        return Diagnosis("AWAITS_ACK", "it is between two steps", job.updated_at)
    return _with_stage(job, worst)


def _of_step(at: Situation) -> Diagnosis | None:
    for rule in STEP_RULES:
        if (found := rule(at)) is not None:
            return found
    return None


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _with_stage(job: Job, worst: Diagnosis) -> Diagnosis:
    """Where nothing is wrong and some of a stage are done, the job waits for the others."""
    pairs = list(zip(job.plan.steps, job.steps, strict=True))
    stage = next((p.stage for p, s in pairs if s.state is not StepState.SUCCEEDED), None)
    members = [(p.step_id, s.state) for p, s in pairs if p.stage == stage]
    done = [name for name, state in members if state is StepState.SUCCEEDED]
    if worst.severity > NO_FAULT or not done:
        return worst
    left = [name for name, state in members if state is not StepState.SUCCEEDED]
    return Diagnosis(
        "WAITS_FOR_STAGE",
        f"of its stage, {_listed(done)} done and {_listed(left)} not",
        job.updated_at,
        [Evidence(worst.summary, worst.since), *worst.evidence],
        "the next stage begins when all of them have succeeded",
        worst.next_at,
        f"lucius job watch {job.job_id}",
        worst.service,
    )
