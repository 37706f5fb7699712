"""Redrive plans: a few jobs first, then the rest at a pace, until too many fail again.

A plan is a note, so it goes on after a restart, in whichever process owns the first lane. It says which jobs
it is about to redrive before it does, and redriving a job twice gives the same new job: so none is left out
and none runs twice, wherever the process dies.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn
from uuid import uuid4

from lucius.core.errors import LedgerError, RequestError
from lucius.core.job import Job
from lucius.core.states import JobState
from lucius.insight.notebook import Note, Notebook
from lucius.ports.engine import Engine
from lucius.ports.leases import LeaseStore
from lucius.ports.ledger import JobQuery
from lucius.ports.redrives import ENDED_PLAN, PlanState, RedrivePlan, RedriveRules

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
        self._notebook = Notebook(store, _PLANS)
        self._engine = engine
        self._runs = runs
        self._now = now
        self._wake = asyncio.Event()

    # -- what is asked -----------------------------------------------------------------------

    async def start(
        self, query: JobQuery, rules: RedriveRules, by: str, reason: str | None
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
            _filters(query),
            query.tenant_ids,
            rules,
            now,
            now,
            by,
            reason,
            matched,
        )
        await self._notebook.change(plan.plan_id, lambda stored: _note(plan, {}, []))
        await self._forget_old()
        self._wake.set()
        return plan

    async def plans(self) -> list[RedrivePlan]:
        notes = await self._notebook.read()
        found = [_read(name, note) for name, note in notes.items()]
        return sorted(found, key=lambda plan: plan.created_at, reverse=True)

    async def stop(self, plan_id: str, by: str) -> RedrivePlan | None:
        def stopped(stored: Note | None) -> Note | None:
            if stored is None or PlanState(stored["state"]) in ENDED_PLAN:
                return stored
            return {**stored, "state": PlanState.STOPPED.value, "said": f"stopped by {by}"}

        note = await self._notebook.change(plan_id, stopped)
        return _read(plan_id, note) if note is not None else None

    async def _forget_old(self) -> None:
        ended = [plan for plan in await self.plans() if plan.state in ENDED_PLAN]
        for plan in ended[KEPT:]:
            await self._notebook.change(plan.plan_id, lambda stored: None)

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
        notes = await self._notebook.read()
        live = [name for name, note in notes.items() if not _is_through(note)]
        for name in live:
            await self._advance(name, notes[name])
        return bool(live)

    async def _advance(self, name: str, note: Note) -> None:
        plan, pending = _read(name, note), dict(note["pending"])
        plan = await self._count_ended(plan, pending)
        plan = _judged(plan, len(pending))
        fresh = await self._next_jobs(plan, pending) if plan.state not in ENDED_PLAN else []
        if plan.state is PlanState.RUNNING and not fresh and not pending and not plan.said:
            plan = replace(plan, state=PlanState.DONE)
        if not await self._save(name, plan, pending, fresh):
            return
        if fresh:
            plan = await self._redrive(plan, pending, fresh)
            await self._save(name, plan, pending, [])

    async def _count_ended(self, plan: RedrivePlan, pending: dict[str, str | None]) -> RedrivePlan:
        """The new jobs that have ended. Those that were about to be redriven are, once more."""
        for old, new in list(pending.items())[:ASKED_AT_ONCE]:
            del pending[old]
            if new is None:
                plan = await self._redrive(plan, pending, [old])
                continue
            job = await self._engine.job(new)
            if job is not None and not job.terminal:
                pending[old] = new  # to the end: the next turn asks the others first
            else:
                plan = _ended(plan, job)
        return plan

    async def _redrive(
        self, plan: RedrivePlan, pending: dict[str, str | None], jobs: list[str]
    ) -> RedrivePlan:
        said = {"by": plan.by, "reason": plan.reason or f"redrive plan {plan.plan_id}"}
        for old in jobs:
            try:
                new = await self._engine.redrive(old, said=said)
            except RequestError as error:
                if error.code in _LATER:
                    return replace(plan, said=f"waits: {error.detail}")
                plan = replace(plan, refused=plan.refused + 1)
                pending.pop(old, None)
                continue
            pending[old] = new.job_id
            plan = replace(plan, redriven=plan.redriven + 1, said="")
        return plan

    async def _next_jobs(self, plan: RedrivePlan, pending: Mapping[str, Any]) -> list[str]:
        """As many as the pace and what is under way leave room for."""
        if plan.state is PlanState.CANARY:
            room = plan.rules.canary - plan.redriven - plan.refused
        else:
            # As many as the time since the last turn allows, no more than five seconds' worth at once.
            passed = min((self._now() - plan.updated_at).total_seconds(), IDLE.total_seconds())
            room = int(plan.rules.rate * max(passed, TURN.total_seconds()))
            room = max(room, 1) if passed * plan.rules.rate >= 1 else room
        room = min(room, MOST_UNDER_WAY - len(pending))
        return await self._matching(plan, pending, room) if room > 0 else []

    async def _matching(
        self, plan: RedrivePlan, pending: Mapping[str, Any], room: int
    ) -> list[str]:
        found: list[str] = []
        query = replace(_query(plan), limit=500)
        while len(found) < room:
            page = await self._engine.jobs(query)
            # Only what failed before the plan began: its own jobs may fail again.
            found += [
                job.job_id
                for job in page.jobs
                if job.job_id not in pending
                and (job.completed_at or plan.created_at) <= plan.created_at
            ]
            if page.next_cursor is None:
                break
            query = replace(query, cursor=page.next_cursor)
        return found[:room]

    async def _save(
        self, name: str, plan: RedrivePlan, pending: Mapping[str, Any], fresh: list[str]
    ) -> bool:
        """What is about to be redriven is saved before it is. False: someone has stopped the plan."""
        stopped = False

        def saved(stored: Note | None) -> Note | None:
            nonlocal stopped
            if stored is None:
                stopped = True
                return None
            stopped = stored["state"] == PlanState.STOPPED.value and plan.state not in ENDED_PLAN
            now = replace(plan, updated_at=self._now())
            if stopped:
                now = replace(now, state=PlanState.STOPPED, said=stored["said"])
            return _note(now, pending, [] if stopped else fresh)

        await self._notebook.change(name, saved)
        return not stopped


def _is_through(note: Note) -> bool:
    """Ended, and the outcome of all that it redrove is known."""
    return PlanState(note["state"]) in ENDED_PLAN and not note["pending"]


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
    through_canary = plan.state is PlanState.CANARY and not under_way and plan.redriven > 0
    if plan.failed > allowed and (enough or through_canary):
        said = f"{plan.failed} of {ended} failed again"
        return replace(plan, state=PlanState.STOPPED, said=said)
    if through_canary and plan.redriven + plan.refused >= min(rules.canary, plan.matched):
        return replace(plan, state=PlanState.RUNNING)
    return plan


# -- as notes --------------------------------------------------------------------------------


def _filters(query: JobQuery) -> dict[str, Any]:
    """What the plan asks for, as a filter of the API says it."""
    several = {"code": query.codes, "step": query.steps, "service": query.services}
    single = {"group": query.group, "request_type": query.request_type}
    times = {"created_from": query.created_from, "created_to": query.created_to}
    found: dict[str, Any] = {n: sorted(v) for n, v in several.items() if v is not None}
    found |= {name: value for name, value in single.items() if value is not None}
    return found | {name: at.isoformat() for name, at in times.items() if at is not None}


def _query(plan: RedrivePlan) -> JobQuery:
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


def _note(plan: RedrivePlan, pending: Mapping[str, Any], fresh: list[str]) -> dict[str, Any]:
    return {
        "state": plan.state.value,
        "filters": dict(plan.filters),
        "tenants": sorted(plan.tenants) if plan.tenants is not None else None,
        "rules": [plan.rules.canary, plan.rules.rate, plan.rules.stop_after, plan.rules.counts],
        "created": plan.created_at.timestamp(),
        "updated": plan.updated_at.timestamp(),
        "by": plan.by,
        "reason": plan.reason,
        "counts": [plan.matched, plan.redriven, plan.succeeded, plan.failed, plan.refused],
        "said": plan.said,
        "pending": {**pending, **dict.fromkeys(fresh)},
    }


def _read(name: str, note: Note) -> RedrivePlan:
    tenants, (matched, redriven, succeeded, failed, refused) = note["tenants"], note["counts"]
    return RedrivePlan(
        name,
        PlanState(note["state"]),
        note["filters"],
        frozenset(tenants) if tenants is not None else None,
        RedriveRules(*note["rules"]),
        datetime.fromtimestamp(note["created"], UTC),
        datetime.fromtimestamp(note["updated"], UTC),
        note["by"],
        note["reason"],
        matched,
        redriven,
        succeeded,
        failed,
        refused,
        under_way=len(note["pending"]),
        said=note["said"],
    )
