"""The small worlds that are walked: which steps, who is at work, and what may go wrong."""

from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from lucius.core.inputs import (
    CancelRequested,
    Input,
    PauseRequested,
    ResultStatus,
    ResumeRequested,
    RetryRequested,
)
from lucius.core.plan import DecisionSource, Mode, Plan, RetryPolicy, Sla, StepPlan
from lucius.core.routing import route
from tests.core.explore.world import NOW

ENDLESS: Final = inf
EVERY_RESULT: Final = tuple(ResultStatus)
SUCCESS_OR_RETRY: Final = (ResultStatus.SUCCEEDED, ResultStatus.FAILED_RETRY)


@dataclass(frozen=True)
class Configuration:
    """An honest service gives one answer to each lease; another may say anything, again and again,
    about any directive that ever reached the bus, which covers every honest one in fewer worlds.
    `leases` bounds how often a lease is given back, `restarts` how often the bus restarts: only to keep
    a world small. Where they are `ENDLESS` the walk shows that the job still comes to an end.
    """

    name: str
    plan: Plan
    honest: bool = True
    results: tuple[ResultStatus, ...] = EVERY_RESULT
    reconcilers: int = 1
    guests: int = 0
    """So many of the reconcilers, the last ones, own no lane: they save what comes and leave the rest."""
    window: int = 1
    leases: float = 0
    refusals: bool = True
    controls: tuple[Input, ...] = ()
    sla: bool = False
    restarts: float = 0
    remote: frozenset[str] = field(default_factory=frozenset)

    @property
    def racing(self) -> bool:
        return self.reconcilers > 1


def small_plan(*stages: int, attempts: int = 2, webhooks: int = 0, sla: Sla | None = None) -> Plan:
    """A job whose steps `a`, `b`, ... are in the given stages."""
    policy = RetryPolicy(max_attempts=attempts)
    names = "abcdef"[: len(stages)]
    steps = tuple(
        StepPlan(name, name.upper(), f"service-{name}", stage, policy)
        for name, stage in zip(names, stages, strict=True)
    )
    decided = (Mode.BURST, DecisionSource.REQUEST, "the request asks for BURST")
    return Plan(
        job_id="job",
        tenant_id="Tenant_A",
        request_type="->".join(step.step_type for step in steps),
        protocol_id="small",
        schema_version="v1",
        input_ref="file:///in.pdf",
        output_ref="file:///out.json",
        payload={},
        steps=steps,
        routing=route("Tenant_A", "doc-1", decided),
        accepted_at=NOW,
        workspace_ref="file:///workspace/",
        doc_id="doc-1",
        callback_urls=tuple(f"https://client.example/{n}" for n in range(webhooks)),
        sla=sla or Sla(),
    )


CONTROLS: Final[tuple[Input, ...]] = (
    CancelRequested(),
    CancelRequested(immediate=True),
    PauseRequested(),
    ResumeRequested(),
)
GENTLE: Final[tuple[Input, ...]] = (CancelRequested(), PauseRequested(), ResumeRequested())

NETWORK: Final = Configuration("two steps, two attempts, a wild network", small_plan(0, 1))
RACE: Final = Configuration(
    "two reconcilers that crash",
    small_plan(0, webhooks=1),
    results=SUCCESS_OR_RETRY,
    reconcilers=2,
)
CANCELLED_RACE: Final = Configuration(
    "two reconcilers, two steps, and a cancel at any moment",
    small_plan(0, 1),
    honest=False,
    results=(ResultStatus.SUCCEEDED,),
    reconcilers=2,
    refusals=False,
    controls=(CancelRequested(),),
)
APART: Final = Configuration(
    "an owner and an orchestrator without lanes, under every control",
    small_plan(0, 1, webhooks=1),
    honest=False,
    results=SUCCESS_OR_RETRY,
    reconcilers=2,
    guests=1,
    refusals=False,
    controls=GENTLE,
)
STEERED_RACE: Final = Configuration(
    "two reconcilers, two steps of one attempt, and every control",
    small_plan(0, 1, attempts=1),
    honest=False,
    reconcilers=2,
    controls=CONTROLS,
)
CONTROL: Final = Configuration(
    "cancel, pause, resume and retry at any moment",
    small_plan(0, 1, sla=Sla(fail_job=True, fail_pause=True)),
    honest=False,
    controls=(*CONTROLS, RetryRequested()),
    sla=True,
)
DRAIN: Final = Configuration(
    "a service that gives leases back, under every control",
    small_plan(0),
    honest=False,
    leases=ENDLESS,
    controls=CONTROLS,
)
STAGE: Final = Configuration(
    "a stage of two, paused and resumed",
    small_plan(0, 0),
    honest=False,
    results=SUCCESS_OR_RETRY,
    refusals=False,
    controls=(PauseRequested(), ResumeRequested()),
)
RESTART: Final = Configuration(
    "a volatile bus that restarts",
    small_plan(0, 1),
    honest=False,
    results=SUCCESS_OR_RETRY,
    restarts=1,
    remote=frozenset("b"),
)
DEATHS: Final = Configuration(
    "a process that dies again and again, and leases that are given back for ever",
    small_plan(0),
    honest=False,
    results=(ResultStatus.SUCCEEDED,),
    refusals=False,
    leases=ENDLESS,
    restarts=ENDLESS,
    controls=(PauseRequested(), ResumeRequested()),
)
EVERYTHING: Final = Configuration(
    "one attempt in a stage of two, and everything at once",
    small_plan(0, 0, attempts=1),
    honest=False,
    leases=2,
    restarts=1,
    controls=GENTLE,
)

DEFAULT: Final = (
    NETWORK,
    RACE,
    APART,
    STEERED_RACE,
    CONTROL,
    DRAIN,
    STAGE,
    RESTART,
    DEATHS,
    EVERYTHING,
)


def deeper(configuration: Configuration, how: str, **changes: Any) -> Configuration:
    return replace(configuration, name=f"{configuration.name} ({how})", **changes)


DEEP: Final = (
    deeper(NETWORK, "three attempts", plan=small_plan(0, 1, attempts=3), honest=False),
    deeper(NETWORK, "three steps", plan=small_plan(0, 1, 2), honest=False),
    deeper(RACE, "two steps", plan=small_plan(0, 1, webhooks=1), honest=False),
    CANCELLED_RACE,
    deeper(CANCELLED_RACE, "failures too", results=SUCCESS_OR_RETRY),
    deeper(APART, "a stage of two", plan=small_plan(0, 0, webhooks=1)),
    deeper(STEERED_RACE, "leases given back", leases=2),
    deeper(CONTROL, "honest services", honest=True, results=SUCCESS_OR_RETRY),
    deeper(CONTROL, "three steps", plan=small_plan(0, 1, 2), sla=False),
    deeper(DRAIN, "honest services", honest=True),
    deeper(DRAIN, "two steps", plan=small_plan(0, 1), leases=2),
    deeper(STAGE, "every result and control", results=EVERY_RESULT, controls=CONTROLS),
    deeper(STAGE, "refused publishes", refusals=True),
    deeper(RESTART, "every control", results=EVERY_RESULT, controls=CONTROLS),
    deeper(RESTART, "two restarts", restarts=2),
    deeper(EVERYTHING, "a third step", plan=small_plan(0, 0, 1, attempts=1), window=2),
)
