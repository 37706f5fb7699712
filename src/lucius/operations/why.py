"""Answers why: gathers the facts when someone asks, and lets the rules name the cause."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from lucius.contract.causes import CAUSES
from lucius.core.effects import Event
from lucius.core.errors import LedgerError
from lucius.core.job import PAUSED_JOB, Job, JobState, StepState
from lucius.core.plan import OUTBOX
from lucius.core.routing import LANES
from lucius.operations.facts import (
    MOVER,
    Clues,
    Facts,
    QueuePlace,
    Situation,
    ordered,
    refused_replies,
)
from lucius.operations.job_rules import (
    JobCheck,
    StepCheck,
    at_work,
    awaits_ack,
    busy,
    cancelled,
    cancelling,
    clock_off,
    failed,
    held_by_limit,
    lane_unowned,
    not_restored,
    not_ticked,
    outage,
    outage_of,
    output_lost,
    paused_job,
    protocol_gone,
    publish_refused,
    redriven,
    succeeded,
    waits_for_retry,
)
from lucius.operations.published_stats import PublishedStats
from lucius.operations.service_rules import (
    NO_FAULT,
    degraded,
    fails_alike,
    never_seen,
    not_subscribed,
    paused,
    replies_refused,
    silent,
    wrong_with,
)
from lucius.operations.services import KnownServices, step_types_of
from lucius.ports.config import Catalog
from lucius.ports.diagnosis import Diagnosis, Evidence
from lucius.ports.lanes import FixedLanes, Lanes
from lucius.ports.ledger import Ledger
from lucius.ports.services import KnownService, Streak
from lucius.ports.workspace import Unrestored

# The rules that name a cause: one small function each, tried in the order of the tables below.
#
# They are pure: a rule looks at facts and answers a finding, or None where it does not apply.

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


SILENCE: Final = ("NO_WORKER_EVER", "WORKERS_SILENT")
"""What proves nothing while nobody could be heard."""
LOOKED_AT: Final = 1000
"""Of the queue in which a job waits: beyond it, its place is not counted."""
LAST_EVENTS: Final = 300
_ORDERED: Final = (*PAUSED_JOB, JobState.CANCELLING, JobState.CANCELLED)
Limited = Callable[[str, str], bool]
"""Whether the tenant may have one directive of this queue out at a time, and has it."""


class RulesDiagnoser:
    def __init__(
        self,
        ledger: Ledger,
        services: KnownServices,
        published_stats: PublishedStats,
        *,
        lanes: Lanes,
        limited: Limited,
        catalog: Callable[[], Catalog],
        unrestored: Callable[[], Sequence[Unrestored]],
        now: Callable[[], datetime],
    ) -> None:
        """`unrestored`: outputs that a loss of power took, and that could not be written again."""
        self._ledger = ledger
        self._services = services
        self._published_stats = published_stats
        self._lanes = lanes
        self._limited = limited
        self._catalog = catalog
        self._unrestored = unrestored
        self._now = now

    async def job(
        self, job: Job, troubles: Mapping[str, str], *, tenants: Collection[str] | None
    ) -> Diagnosis:
        facts = await self._facts(troubles, tenants)
        return diagnose(job, facts, await self._clues(job, facts))

    async def stuck(self, jobs: Sequence[Job], troubles: Mapping[str, str]) -> set[str]:
        """Only ids are answered, so the facts of all tenants may count."""
        facts = await self._facts(troubles, None)
        found = ((job.job_id, diagnose(job, facts, Clues())) for job in jobs if not job.terminal)
        return {job_id for job_id, finding in found if finding.severity > NO_FAULT}

    async def system(
        self,
        troubles: Mapping[str, str],
        warnings: Mapping[str, str],
        *,
        tenants: Collection[str] | None,
    ) -> list[Diagnosis]:
        facts = await self._facts(troubles, tenants)
        outages = (outage(facts, *each) for each in OUTAGES)
        found = [finding for finding in outages if finding is not None]
        found += _beside(facts, warnings)
        if facts.whole and (lost := self._unrestored()):
            found.append(not_restored(lost))
        deaf = "bus" in facts.troubles or "ledger" in facts.troubles
        for view in facts.services.values():
            finding = wrong_with(view, facts.now, whole=facts.whole)
            if finding is not None and not (deaf and finding.cause in SILENCE):
                found.append(finding)
        return sorted(found, key=lambda finding: -finding.severity)

    # -- gathering ---------------------------------------------------------------------------

    async def _facts(self, troubles: Mapping[str, str], tenants: Collection[str] | None) -> Facts:
        """While the ledger is away, that is all there is to know."""
        whole = tenants is None
        named = frozenset(step_types_of(self._catalog()))
        facts = Facts(self._now(), {}, _known(troubles, whole=whole), named, whole=whole)
        try:
            elsewhere = _known(await self._published_stats.troubles(), whole=whole)
            views = await self._services.services()
            owned = None if isinstance(self._lanes, FixedLanes) else set(await self._lanes.rows())
        except LedgerError as error:
            told = str(error) if whole else "it does not answer"
            return replace(facts, troubles={**facts.troubles, "ledger": told})
        shown = {v.service: v if tenants is None else _bare(v, tenants) for v in views}
        return replace(facts, services=shown, troubles={**elsewhere, **facts.troubles}, owned=owned)

    async def _clues(self, job: Job, facts: Facts) -> Clues:
        lost = [each for each in self._unrestored() if each.job_id == job.job_id]
        try:
            events = await self._events(job)
            found = (await self._places(job), ordered(events), self._progress(job))
            return Clues(*found, refused_replies(events), lost)
        except LedgerError:
            return Clues(unrestored=lost)

    def _progress(self, job: Job) -> dict[str, str]:
        found: dict[str, str] = {}
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            said = (
                self._published_stats.progress(step.execution.exec_id) if step.execution else None
            )
            if said is not None:
                found[planned.step_id] = said
        return found

    async def _events(self, job: Job) -> Sequence[Event]:
        """The last ones, where orders or refused replies may be among them."""
        if job.state not in _ORDERED and not job.noted:
            return ()
        after = max(0, job.seq - LAST_EVENTS)
        return await self._ledger.events(job.job_id, after, LAST_EVENTS)

    async def _places(self, job: Job) -> dict[str, QueuePlace]:
        found: dict[str, QueuePlace] = {}
        for planned, step in zip(job.plan.steps, job.steps, strict=True):
            if step.ready:
                found[planned.step_id] = await self._place(job, planned.step_id, planned.service)
        return found

    async def _place(self, job: Job, step_id: str, service: str) -> QueuePlace:
        queue_name, shard = job.plan.queue_name(service), job.plan.shard
        queues = await self._ledger.ready_queues([shard])
        tenants = sum(queue.queue_name == queue_name for queue in queues)
        waiting = await self._ledger.ready(queue_name, shard, job.tenant_id, LOOKED_AT)
        names = [(entry.job_id, entry.step_id) for entry in waiting]
        mine = (job.job_id, step_id)
        limited = self._limited(queue_name, job.tenant_id)
        ahead = names.index(mine) if mine in names else len(names)
        return QueuePlace(ahead, tenants, mine not in names and len(names) == LOOKED_AT, limited)


def _known(troubles: Mapping[str, str], *, whole: bool) -> dict[str, str]:
    """Tasks of a process are one trouble: its engine is down."""
    found: dict[str, str] = {}
    for name, told in troubles.items():
        known = name if name in ("ledger", "bus", "clock") else "reconciler"
        found[known] = told if whole else "it does not answer"
    return found


def _bare(view: KnownService, tenants: Collection[str]) -> KnownService:
    """For a caller bound to tenants: without workers, orders of operators, and failures of other tenants."""
    return replace(
        view,
        workers=(),
        paused_by=None,
        paused_reason=None,
        failing=_own(view.failing, tenants),
        failing_before=_own(view.failing_before, tenants),
        failed_until=_own(view.failed_until, tenants),
    )


def _own(streak: Streak | None, tenants: Collection[str]) -> Streak | None:
    """Without words of others: failures of one group share their code, and those of none share nothing."""
    if streak is None or streak.tenants.isdisjoint(tenants):
        return None
    return replace(streak, code=streak.code if streak.group else "", message="")


def _beside(facts: Facts, warnings: Mapping[str, str]) -> list[Diagnosis]:
    found: list[Diagnosis] = []
    if "clock" in facts.troubles:
        told = [Evidence(facts.troubles["clock"], facts.now)]
        comes = "the process goes on when the clock is right"
        found.append(
            Diagnosis("CLOCK_OFF", "the clock of this machine is wrong", None, told, comes)
        )
    found += unowned_lanes(facts)
    for name, code, command in WARNED:
        if name in warnings:
            told = [Evidence(warnings[name], facts.now)]
            title, comes = CAUSES[code].title, CAUSES[code].by_itself
            said = title[0].lower() + title[1:]
            found.append(Diagnosis(code, said, None, told, comes, command=command))
    return found


WARNED: Final = (
    ("configuration", "CONFIGURATION_INVALID", "lucius protocols check FILE"),
    ("ledger", "JOBS_UNREADABLE", "lucius verify"),
    ("event_loop", "LOOP_BLOCKED", "lucius services"),
    ("services", "SERVICES_DOWN", "lucius services"),
    ("background", "TASK_FAILS", "lucius why"),
)
"""Warnings of `/readyz`, and the cause that each is."""


def unowned_lanes(facts: Facts) -> Iterator[Diagnosis]:
    """Of the engines whose processes run; where none runs at all, of the one that needs no more."""
    if facts.owned is None:
        return
    running = [engine for engine in MOVER if facts.lanes_of(engine)] or [OUTBOX]
    for engine in running:
        if left := sorted(set(range(LANES)) - set(facts.lanes_of(engine))):
            mover = MOVER[engine]
            said = f"no {mover} owns the lanes {', '.join(map(str, left))}"
            comes = f"the next {mover} takes them"
            yield Diagnosis("LANE_UNOWNED", said, None, (), comes, command=f"lucius {mover}")
