"""Redrive plans: a few jobs first, then the rest at a pace, until too many fail again.

A plan is a note, so it goes on after a restart, in whichever process owns the first lane. It says which jobs
it is about to redrive before it does, and redriving a job twice gives the same new job: so none is left out
and none runs twice, wherever the process dies.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn
from uuid import uuid4

from lucius.core.errors import LedgerError, LedgerUnavailableError, RequestError
from lucius.core.job import Job, JobState
from lucius.operations.shared_records import Record, SharedRecords
from lucius.ports.engine import Engine
from lucius.ports.leases import LeaseStore
from lucius.ports.ledger import JobQuery
from lucius.ports.redrives import ENDED_PLAN, RATE, PlanState, RedrivePlan, RedriveRules

# Redrive plans as notes: what is stored of one, and which jobs it asks for.


@dataclass(slots=True)
class TakenJobs:
    """Jobs that a plan has taken. `pending`: by the old job, the new one that has not ended.

    None stands for one that is about to be made.
    """

    pending: dict[str, str | None]
    refused: list[str]


def taken_of(record: Record) -> TakenJobs:
    return TakenJobs(dict(record["pending"]), list(record.get("refused", ())))


def filters_of(query: JobQuery) -> dict[str, Any]:
    """What the plan asks for, as a filter of the API says it."""
    several = {"code": query.codes, "step": query.steps, "service": query.services}
    single = {"group": query.group, "request_type": query.request_type}
    times = {"created_from": query.created_from, "created_to": query.created_to}
    found: dict[str, Any] = {n: sorted(v) for n, v in several.items() if v is not None}
    found |= {name: value for name, value in single.items() if value is not None}
    return found | {name: at.isoformat() for name, at in times.items() if at is not None}


def query_of(plan: RedrivePlan) -> JobQuery:
    given = plan.filters

    def some(name: str) -> frozenset[str] | None:
        return frozenset(given[name]) if name in given else None

    def moment(name: str) -> datetime | None:
        return datetime.fromisoformat(given[name]) if name in given else None

    return JobQuery(
        tenant_ids=plan.tenants,
        request_type=given.get("request_type"),
        created_from=moment("created_from"),
        created_to=moment("created_to"),
        dlq=True,
        codes=some("code"),
        steps=some("step"),
        services=some("service"),
        group=given.get("group"),
    )


def record_of(plan: RedrivePlan, taken: TakenJobs, fresh: list[str]) -> dict[str, Any]:
    return {
        "state": plan.state.value,
        "filters": dict(plan.filters),
        "tenants": sorted(plan.tenants) if plan.tenants is not None else None,
        "rules": [plan.rules.canary, plan.rules.rate, plan.rules.stop_after, plan.rules.counts],
        "created": plan.created_at.timestamp(),
        "updated": plan.updated_at.timestamp(),
        "paced": plan.paced_at.timestamp(),
        "by": plan.by,
        "reason": plan.reason,
        "counts": [plan.matched, plan.redriven, plan.succeeded, plan.failed, plan.refused],
        "said": plan.said,
        "pending": {**taken.pending, **dict.fromkeys(fresh)},
        "refused": taken.refused,
        "bound": plan.bound,
    }


def plan_shown(name: str, record: Record) -> RedrivePlan:
    """As `plan_of`. A note that cannot be read is a plan that has stopped, and hides no other."""
    try:
        return plan_of(name, record)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        said = f"this plan cannot be read, start another one: {error!r}"
        never, rules = datetime.fromtimestamp(0, UTC), RedriveRules()
        return RedrivePlan(
            name, PlanState.STOPPED, {}, None, rules, never, never, never, "", said=said
        )


def is_through(record: Record) -> bool:
    """Ended, and the outcome of all that it redrove is known."""
    return record.get("state") in ENDED_PLAN and not record.get("pending")


def plan_of(name: str, record: Record) -> RedrivePlan:
    tenants, (matched, redriven, succeeded, failed, refused) = record["tenants"], record["counts"]
    return RedrivePlan(
        name,
        PlanState(record["state"]),
        record["filters"],
        frozenset(tenants) if tenants is not None else None,
        RedriveRules(*record["rules"]),
        datetime.fromtimestamp(record["created"], UTC),
        datetime.fromtimestamp(record["updated"], UTC),
        datetime.fromtimestamp(record.get("paced", record["updated"]), UTC),
        record["by"],
        record["reason"],
        matched,
        redriven,
        succeeded,
        failed,
        refused,
        under_way=len(record["pending"]),
        said=record["said"],
        bound=record.get("bound", False),
    )


log = logging.getLogger("lucius.redrives")

_PLANS: Final = "redrive"
TURN: Final = timedelta(seconds=1)
IDLE: Final = timedelta(seconds=5)
"""Between two looks where no plan runs."""
MOST_UNDER_WAY: Final = 500
"""Of one plan. Their outcomes are awaited before more are redriven."""
ASKED_AT_ONCE: Final = 100
"""Jobs whose outcome is asked for in one turn."""
KEPT: Final = 50
"""Plans that are remembered."""
MOST_LIVE: Final = 20
"""Plans that may run at once: each of them looks at the ledger every second."""
MOST_OF_A_TENANT: Final = 3
"""Of these, plans that callers bound to a tenant may run for it."""
RESERVED: Final = 5
"""Of these, plans that no caller bound to tenants may take: they are left to operators."""
MOST_REFUSED: Final = 500
"""A plan of which so many were refused stops. They are remembered, so that none is tried again."""
MOST_SAID: Final = 500
_ROUNDING: Final = 1e-6
_WAITS: Final = "waits: "
_LATER: Final = ("TENANT_SATURATED", "GLOBAL_SATURATED", "LANE_SATURATED")
"""Limits that pass: the job is redriven in a later turn."""


class RedrivePlans:
    def __init__(
        self,
        store: LeaseStore,
        engine: Engine,
        *,
        runs: Callable[[], bool],
        now: Callable[[], datetime],
    ) -> None:
        """`runs`: whether this process is the one that runs plans."""
        self._records = SharedRecords(store, _PLANS)
        self._engine = engine
        self._runs = runs
        self._now = now
        self._wake = asyncio.Event()
        self._starting = asyncio.Lock()

    # -- what is asked -----------------------------------------------------------------------

    async def start(
        self,
        query: JobQuery,
        rules: RedriveRules,
        by: str,
        reason: str | None,
        *,
        bound: bool = False,
    ) -> RedrivePlan:
        matched = await self._engine.count(query)
        if not matched:
            raise RequestError(
                "NOTHING_TO_REDRIVE",
                "no job in the dead-letter view matches this filter, so nothing was started;"
                " `lucius dlq` lists what is there",
                status=409,
            )
        now = self._now()
        plan = RedrivePlan(
            f"plan_{uuid4().hex[:12]}",
            PlanState.CANARY if rules.canary else PlanState.RUNNING,
            filters_of(query),
            query.tenant_ids,
            rules,
            now,
            now,
            now - TURN,
            by,
            reason,
            matched,
            bound=bound,
        )
        async with self._starting:
            await self._check_others(query, bound=bound)
            await self._records.change(
                plan.plan_id, lambda stored: record_of(plan, TakenJobs({}, []), [])
            )
        await self._forget_old()
        self._wake.set()
        return plan

    async def _check_others(self, query: JobQuery, *, bound: bool) -> None:
        """A plan that is given twice would go at twice the pace."""
        live = [plan for plan in await self.plans() if plan.state not in ENDED_PLAN]
        for plan in live:
            if (plan.filters, plan.tenants) == (filters_of(query), query.tenant_ids):
                raise RequestError(
                    "PLAN_UNDER_WAY",
                    f"{plan.plan_id} redrives these jobs already, so nothing was started;"
                    f" `lucius redrives {plan.plan_id}` shows it, and --stop ends it",
                    status=409,
                )
        if (taken := _all_taken(live, query.tenant_ids or (), bound=bound)) is not None:
            raise RequestError(
                "TOO_MANY_PLANS",
                f"{taken}, so nothing was started; wait for one to end, or end one with"
                " `lucius redrives PLAN --stop`",
                status=409,
            )

    async def plans(self) -> list[RedrivePlan]:
        records = await self._records.read()
        found = [plan_shown(name, record) for name, record in records.items()]
        return sorted(found, key=lambda plan: plan.created_at, reverse=True)

    async def stop(self, plan_id: str, by: str) -> RedrivePlan | None:
        def stopped(stored: Record | None) -> Record | None:
            if stored is None or stored.get("state") in ENDED_PLAN:
                return stored
            return {**stored, "state": PlanState.STOPPED.value, "said": f"stopped by {by}"}

        record = await self._records.change(plan_id, stopped)
        return plan_shown(plan_id, record) if record is not None else None

    async def _forget_old(self) -> None:
        ended = [plan for plan in await self.plans() if plan.state in ENDED_PLAN]
        for plan in ended[KEPT:]:
            await self._records.change(plan.plan_id, lambda stored: None)

    # -- running -----------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        while True:
            at_work = False
            try:
                at_work = self._runs() and await self.turn()
            except LedgerError as error:
                log.info("redrive plans wait for the ledger: %s", error)
            await self._pause(TURN if at_work else IDLE)

    async def _pause(self, length: timedelta) -> None:
        try:
            async with asyncio.timeout(length.total_seconds()):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def turn(self) -> bool:
        """One step of every plan that is not through. False: there is none."""
        records = await self._records.read()
        live = [name for name, record in records.items() if not is_through(record)]
        for name in live:
            await self._step(name, records[name])
        return bool(live)

    async def _step(self, name: str, record: Record) -> None:
        """Advance one plan. An error in it stops that plan, which says so; the others go on."""
        try:
            await self._advance(name, record)
        except LedgerUnavailableError as error:
            log.info("the redrive plan %s waits for the ledger: %s", name, error)
        except Exception as error:
            log.exception("the redrive plan %s is stopped", name)
            said = f"stopped by an error, start another plan: {error!r}"[:MOST_SAID]
            await self._records.change(name, lambda stored: _stopped(stored, said))

    async def _advance(self, name: str, record: Record) -> None:
        plan, taken = plan_of(name, record), taken_of(record)
        if RATE.read(plan.rules.rate) is None:
            raise ValueError(f"its rate, {plan.rules.rate:g} jobs a second, {RATE.fault}")
        plan = await self._count_ended(plan, taken)
        plan = _judged(plan, len(taken.pending))
        fresh: list[str] = []
        capacity = self._capacity(plan, len(taken.pending)) if plan.state not in ENDED_PLAN else 0
        if capacity > 0:
            fresh = await self._matching(plan, taken, capacity)
            plan = replace(plan, paced_at=self._paced(plan, capacity))
            if not fresh and not taken.pending:
                said = "" if plan.said.startswith(_WAITS) else plan.said
                plan = replace(plan, state=PlanState.DONE, said=said)
        if await self._save(name, plan, taken, fresh) and fresh:
            plan = await self._redrive(plan, taken, fresh)
            await self._save(name, plan, taken, [])

    async def _count_ended(self, plan: RedrivePlan, taken: TakenJobs) -> RedrivePlan:
        """The new jobs that have ended. Those that were about to be redriven are, once more."""
        pending = taken.pending
        for old, new in list(pending.items())[:ASKED_AT_ONCE]:
            del pending[old]
            if new is None and plan.state not in ENDED_PLAN:
                plan = await self._redrive(plan, taken, [old])
                continue
            job = await self._engine.job(new) if new is not None else await self._took_over(old)
            if job is not None and not job.terminal:
                pending[old] = job.job_id  # to the end: the next turn asks the others first
            elif new is not None or job is not None:
                plan = _ended(plan, job)
        return plan

    async def _took_over(self, old: str) -> Job | None:
        """Of a plan that was stopped: the new job, if there is one already. None is made any more."""
        job = await self._engine.job(old)
        return await self._engine.job(job.redriven_by) if job and job.redriven_by else None

    async def _redrive(self, plan: RedrivePlan, taken: TakenJobs, jobs: list[str]) -> RedrivePlan:
        said = {"by": plan.by, "reason": plan.reason or f"redrive plan {plan.plan_id}"}
        for old in jobs:
            try:
                new = await self._engine.redrive(old, audit=said)
            except RequestError as error:
                if error.code in _LATER:
                    return replace(plan, said=f"{_WAITS}{error.detail}")
                told = f"refused: {error.code}: {error.detail}"[:MOST_SAID]
                plan = replace(plan, refused=plan.refused + 1, said=told)
                taken.refused.append(old)
                continue
            taken.pending[old] = new.job_id
            plan = replace(plan, redriven=plan.redriven + 1, said="")
        return plan

    def _capacity(self, plan: RedrivePlan, under_way: int) -> int:
        """How many may be redriven now: as many as the pace and what is under way leave room for.

        The pace is counted from when jobs were last looked for, so that less than one a second is one
        now and then. No more than five seconds' worth go at once.
        """
        if plan.state is PlanState.CANARY:
            capacity = plan.rules.canary - plan.redriven - plan.refused
        else:
            passed = (self._now() - plan.paced_at).total_seconds()
            most = max(int(plan.rules.rate * IDLE.total_seconds()), 1)
            capacity = min(int(plan.rules.rate * max(passed, 0.0) + _ROUNDING), most)
        return min(capacity, MOST_UNDER_WAY - under_way)

    def _paced(self, plan: RedrivePlan, capacity: int) -> datetime:
        """Up to when the pace is used: what is left of a job's time counts for the next one."""
        now, each = self._now(), timedelta(seconds=1 / plan.rules.rate)
        return (
            now
            if plan.state is PlanState.CANARY
            else max(plan.paced_at + capacity * each, now - each)
        )

    async def _matching(self, plan: RedrivePlan, taken: TakenJobs, capacity: int) -> list[str]:
        found: list[str] = []
        known = {*taken.pending, *taken.refused}
        query = replace(query_of(plan), limit=500)
        while len(found) < capacity:
            page = await self._engine.jobs(query)
            # Only what failed before the plan began: its own jobs may fail again.
            found += [
                job.job_id
                for job in page.jobs
                if job.job_id not in known
                and (job.completed_at or plan.created_at) <= plan.created_at
            ]
            if page.next_cursor is None:
                break
            query = replace(query, cursor=page.next_cursor)
        return found[:capacity]

    async def _save(self, name: str, plan: RedrivePlan, taken: TakenJobs, fresh: list[str]) -> bool:
        """What is about to be redriven is saved before it is. False: someone has stopped the plan."""
        stopped = False

        def saved(stored: Record | None) -> Record | None:
            nonlocal stopped
            if stored is None:
                stopped = True
                return None
            stopped = stored["state"] == PlanState.STOPPED.value and plan.state not in ENDED_PLAN
            now = replace(plan, updated_at=self._now())
            if stopped:
                now = replace(now, state=PlanState.STOPPED, said=stored["said"])
            return record_of(now, taken, [] if stopped else fresh)

        await self._records.change(name, saved)
        return not stopped


def _all_taken(live: Sequence[RedrivePlan], tenants: Collection[str], *, bound: bool) -> str | None:
    """Which share is used up, if one is. A tenant learns of its own and of no other's."""
    if len(live) >= MOST_LIVE:
        return f"{MOST_LIVE} redrive plans run already, which is the most"
    if not bound:
        return None
    of_tenants = [plan for plan in live if plan.bound]
    for tenant_id in tenants:
        if sum(tenant_id in (plan.tenants or ()) for plan in of_tenants) >= MOST_OF_A_TENANT:
            return f"{MOST_OF_A_TENANT} redrive plans of {tenant_id!r} run already"
    if len(of_tenants) >= MOST_LIVE - RESERVED:
        return "the redrive plans that tenants may run together are all in use"
    return None


def _stopped(stored: Record | None, said: str) -> Record | None:
    """For good: what it has redriven goes on, and is not asked after. A damaged note may be empty."""
    if stored is None:
        return None
    return {**stored, "state": PlanState.STOPPED.value, "said": said, "pending": {}}


def _ended(plan: RedrivePlan, job: Job | None) -> RedrivePlan:
    if job is not None and job.state is JobState.SUCCEEDED:
        return replace(plan, succeeded=plan.succeeded + 1)
    return replace(plan, failed=plan.failed + 1)


def _judged(plan: RedrivePlan, under_way: int) -> RedrivePlan:
    """Whether it goes on, by how the redriven jobs ended so far."""
    if plan.state in ENDED_PLAN:
        return plan
    ended, rules = plan.succeeded + plan.failed, plan.rules
    allowed = rules.stop_after if rules.counts else rules.stop_after * ended
    enough = rules.counts or ended >= min(max(rules.canary, 10), plan.matched)
    tried = plan.redriven + plan.refused
    through_canary = plan.state is PlanState.CANARY and not under_way and tried > 0
    if plan.refused >= MOST_REFUSED:
        return replace(plan, state=PlanState.STOPPED)  # `said` has why they were refused
    if plan.failed > allowed and (enough or through_canary):
        said = f"{plan.failed} of {ended} failed again"
        return replace(plan, state=PlanState.STOPPED, said=said)
    if through_canary and not plan.redriven and tried >= min(rules.canary, plan.matched):
        return replace(plan, state=PlanState.STOPPED)
    if through_canary and tried >= min(rules.canary, plan.matched):
        return replace(plan, state=PlanState.RUNNING)
    return plan
