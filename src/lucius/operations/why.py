"""Answers why: gathers the facts when someone asks, and lets the rules name the cause."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from lucius.contract.causes import CAUSES
from lucius.core.effects import Event
from lucius.core.errors import LedgerError
from lucius.core.job import PAUSED_JOB, Job, JobState, StepState
from lucius.core.plan import OUTBOX
from lucius.core.retry import EFFECT_ATTEMPTS
from lucius.core.routing import LANES
from lucius.operations.deliveries import given_up_in, host_of
from lucius.operations.facts import (
    MOVER,
    Clues,
    Facts,
    QueuePlace,
    Situation,
    ordered,
    refused_replies,
)
from lucius.operations.impact import impact_of
from lucius.operations.job_rules import (
    BEHIND,
    MOST_NAMED,
    JobCheck,
    cancelled,
    cancelling,
    clock_off,
    failed,
    failed_jobs,
    failed_webhooks,
    lane_unowned,
    not_restored,
    not_ticked,
    outage,
    outage_of,
    output_lost,
    paused_job,
    redriven,
    succeeded,
    tenant_at_limit,
    webhook_fails,
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
    seconds,
    services_down,
    silent,
    wrong_with,
)
from lucius.operations.services import KnownServices, step_types_of
from lucius.operations.step_rules import (
    StepCheck,
    at_work,
    awaits_ack,
    busy,
    disk_full,
    held_by_limit,
    protocol_gone,
    publish_refused,
    waits_for_retry,
)
from lucius.ports.config import Catalog
from lucius.ports.diagnosis import Diagnosis, Evidence
from lucius.ports.lanes import FixedLanes, Lanes
from lucius.ports.ledger import NO_LIMITS, JobQuery, Ledger, Limits
from lucius.ports.services import KnownService, Streak
from lucius.ports.webhooks import FailedWebhook
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
    webhook_fails,
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
    services_down,
    fails_alike,
    protocol_gone,
    not_subscribed,
    replies_refused,
    never_seen,
    silent,
    held_by_limit,
    degraded,
    disk_full,
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
        f"waiting for {', '.join(left)}; {_listed(done)} done",
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
STILL_REFUSED: Final = timedelta(minutes=1)
"""A tenant whose last request was refused longer ago, and that is below its limit, has no trouble now."""
FAILED_LOOKED_AT: Final = 200
"""Failed jobs that are told apart by tenant; beyond, they are counted alone."""
_ORDERED: Final = (*PAUSED_JOB, JobState.CANCELLING, JobState.CANCELLED)
Limited = Callable[[str, str], bool]
"""Whether the tenant may have one directive of this queue out at a time, and has it."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What the process that is asked knows of itself, besides what it tells other processes.

    `unrestored`: outputs that a loss of power took, and that could not be written again. `services_down`:
    services of `lucius up` whose process has died, and how. `fault`: why the newest configuration is not in
    force. `limits`: how many live jobs a tenant may have. `provisions`: subscriptions are made by
    `lucius bus provision`, and not by processes as they need them.
    """

    unrestored: Callable[[], Sequence[Unrestored]] = tuple
    services_down: Callable[[], Mapping[str, str]] = dict
    fault: Callable[[], str | None] = lambda: None
    limits: Callable[[str], Limits] = lambda tenant_id: NO_LIMITS
    provisions: bool = False


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
        process: ProcessState,
        now: Callable[[], datetime],
    ) -> None:
        self._ledger = ledger
        self._services = services
        self._published_stats = published_stats
        self._lanes = lanes
        self._limited = limited
        self._catalog = catalog
        self._process = process
        self._now = now

    async def job(
        self, job: Job, troubles: Mapping[str, str], *, tenants: Collection[str] | None
    ) -> Diagnosis:
        facts = await self._facts(troubles, tenants)
        found = diagnose(job, facts, await self._clues(job, facts))
        if found.severity <= NO_FAULT:
            return found
        return (await self._with_impact([found], facts, tenants))[0]

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
        found += _beside(facts, warnings, self._process.fault())
        if facts.whole and (lost := self._process.unrestored()):
            found.append(not_restored(lost))
        deaf = "bus" in facts.troubles or "ledger" in facts.troubles
        for view in facts.services.values():
            finding = wrong_with(view, facts)
            if finding is not None and not (deaf and finding.cause in SILENCE):
                found.append(finding)
        with suppress(LedgerError):
            found += await self._refused_tenants(tenants)
            if failed := await self._published_stats.failed(tenants):
                found.append(failed_webhooks(failed))
            found += await self._failed_jobs(tenants)
        found = await self._with_impact(found, facts, tenants)
        return sorted(found, key=lambda finding: -finding.severity)

    async def _with_impact(
        self, found: Sequence[Diagnosis], facts: Facts, tenants: Collection[str] | None
    ) -> list[Diagnosis]:
        try:
            return await impact_of(found, facts, self._ledger, tenants)
        except LedgerError:
            return list(found)

    async def _refused_tenants(self, tenants: Collection[str] | None) -> list[Diagnosis]:
        """Those that were refused lately and are at their limit still, the busiest first."""
        refused = (await self._published_stats.refusals()).tenants
        mine = {t: each for t, each in refused.items() if tenants is None or t in tenants}
        if not mine:
            return []
        live, now = (await self._ledger.inflight()).tenants, self._now()
        found = []
        for tenant_id in sorted(mine, key=lambda each: -mine[each].requests)[:MOST_NAMED]:
            limit, count = self._process.limits(tenant_id).tenant, live.get(tenant_id, 0)
            lately = now - mine[tenant_id].last_at < STILL_REFUSED
            if limit is not None and (count >= limit or lately):
                found.append(tenant_at_limit(tenant_id, mine[tenant_id], count, limit))
        return found

    async def _failed_jobs(self, tenants: Collection[str] | None) -> list[Diagnosis]:
        query = JobQuery(tenant_ids=tenants, dlq=True, limit=FAILED_LOOKED_AT)
        page = await self._ledger.list(query)
        if not page.jobs:
            return []
        more = page.next_cursor is not None
        count = await self._ledger.count(query) if more else len(page.jobs)
        return [failed_jobs(page.jobs, count, more=more)]

    # -- gathering ---------------------------------------------------------------------------

    async def _facts(self, troubles: Mapping[str, str], tenants: Collection[str] | None) -> Facts:
        """While the ledger is away, that is all there is to know."""
        whole = tenants is None
        named = frozenset(step_types_of(self._catalog()))
        down = self._process.services_down()
        known, provisions = _known(troubles, whole=whole), self._process.provisions
        facts = Facts(self._now(), {}, known, named, whole=whole, down=down, provisions=provisions)
        try:
            elsewhere = _known(
                {**await self._published_stats.troubles(), **await self._behind()}, whole=whole
            )
            views = await self._services.services()
            owned = None if isinstance(self._lanes, FixedLanes) else set(await self._lanes.rows())
        except LedgerError as error:
            told = str(error) if whole else "it does not answer"
            return replace(facts, troubles={**facts.troubles, "ledger": told})
        shown = {v.service: v if tenants is None else _bare(v, tenants) for v in views}
        return replace(facts, services=shown, troubles={**elsewhere, **facts.troubles}, owned=owned)

    async def _behind(self) -> dict[str, str]:
        """A ledger without a clock of its own says that ours is wrong by what it has from later than now."""
        if not isinstance(self._lanes, FixedLanes):
            return {}
        newest = (await self._ledger.list(JobQuery(limit=1))).jobs
        at = max((each.updated_at for each in newest), default=self._now())
        behind = at - self._now()
        if behind <= BEHIND:
            return {}
        return {"clock": f"it is {seconds(behind)} behind the newest job that is stored"}

    async def _clues(self, job: Job, facts: Facts) -> Clues:
        lost = [each for each in self._process.unrestored() if each.job_id == job.job_id]
        try:
            events = await self._events(job)
            found = (await self._places(job), ordered(events), self._progress(job))
            return Clues(*found, refused_replies(events), lost, _given_up(job, events))
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
        told = job.terminal and job.plan.callback_urls
        if job.state not in _ORDERED and not job.noted and not told:
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


def _given_up(job: Job, events: Sequence[Event]) -> list[FailedWebhook]:
    if not job.terminal or not job.plan.callback_urls:
        return []
    return [
        FailedWebhook(
            *(job.job_id, job.tenant_id, host_of(job, owed_id), EFFECT_ATTEMPTS),
            *(error, job.updated_at),
        )
        for owed_id, error in given_up_in(events).items()
    ]


def _known(troubles: Mapping[str, str], *, whole: bool) -> dict[str, str]:
    """Tasks of a process are one trouble: its engine is down."""
    found: dict[str, str] = {}
    for name, told in troubles.items():
        known = name if name in ("ledger", "bus", "clock") else "reconciler"
        hidden = "it is wrong" if name == "clock" else "it does not answer"
        found[known] = told if whole else hidden
    return found


def _bare(view: KnownService, tenants: Collection[str]) -> KnownService:
    """For a caller bound to tenants: without workers, orders of operators, and failures of other tenants."""
    return replace(
        view,
        workers=(),
        paused_by=None,
        paused_reason=None,
        pull_refused=None,
        misnamed=None,
        failing=_own(view.failing, tenants),
        failing_before=_own(view.failing_before, tenants),
        failed_until=_own(view.failed_until, tenants),
    )


def _own(streak: Streak | None, tenants: Collection[str]) -> Streak | None:
    """Without words of others: failures of one group share their code, and those of none share nothing."""
    if streak is None or streak.tenants.isdisjoint(tenants):
        return None
    return replace(streak, code=streak.code if streak.group else "", message="")


def _beside(facts: Facts, warnings: Mapping[str, str], fault: str | None = None) -> list[Diagnosis]:
    """`fault`: of the configuration, which names files, so it is for those who may know."""
    found: list[Diagnosis] = []
    if "clock" in facts.troubles:
        told = [Evidence(facts.troubles["clock"], facts.now)]
        comes = "the process goes on when the clock is right"
        said = "the clock of this machine is wrong"
        found.append(Diagnosis("CLOCK_OFF", said, None, told, comes, command="timedatectl"))
    found += unowned_lanes(facts)
    for name, code, command in WARNED:
        if name in warnings:
            told = [Evidence(warnings[name], facts.now)]
            if name == "configuration" and fault is not None and facts.whole:
                told = [Evidence(line) for line in fault.splitlines()[:MOST_NAMED]]
                command = f"lucius protocols check {fault.partition(':')[0]}"
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
