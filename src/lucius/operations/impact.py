"""Whom a cause concerns: how many jobs, of which tenants, and since when the oldest of them waits.

It looks at a bounded number of live jobs, those that the asker may see, and says so where there are more.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from lucius.core.job import LIVE_JOB, Job, Step, StepState
from lucius.operations.facts import Facts
from lucius.ports.diagnosis import Diagnosis, Impact
from lucius.ports.ledger import JobQuery, Ledger

LOOKED_AT: Final = 200
"""Live jobs, the newest first."""
_AT_WORK: Final = ("WORKER_QUIET", "LOOP_BLOCKED")
"""Causes that concern what is at work; the others of a service concern what waits for it."""
_OF_ALL: Final = (
    *("LEDGER_AWAY", "ENGINE_DOWN", "BUS_AWAY", "CLOCK_OFF", "LANE_UNOWNED", "NOT_TICKED"),
)
"""Causes that concern every live job."""

OF_A_TENANT: Final = "TENANT_AT_LIMIT"
Concerns = Callable[[Step], bool]


async def impact_of(
    found: Sequence[Diagnosis], facts: Facts, ledger: Ledger, tenants: Collection[str] | None
) -> list[Diagnosis]:
    """The same findings, each with its impact where that is known. One look for all of them."""
    asked = [each for each in found if _is_asked(each)]
    if not asked or "ledger" in facts.troubles:
        return list(found)
    query = JobQuery(tenant_ids=tenants, states=LIVE_JOB, limit=LOOKED_AT)
    page = await ledger.list(query)
    more = page.next_cursor is not None
    return [
        replace(each, impact=_impact(each, page.jobs, facts, more=more)) if each in asked else each
        for each in found
    ]


def _is_asked(found: Diagnosis) -> bool:
    if found.cause == OF_A_TENANT:
        return True
    return found.impact is None and (found.service is not None or _all(found))


def _all(found: Diagnosis) -> bool:
    return found.cause in _OF_ALL


def _impact(found: Diagnosis, jobs: Sequence[Job], facts: Facts, *, more: bool) -> Impact | None:
    if found.cause == OF_A_TENANT and found.impact is not None:
        mine = [j.plan.accepted_at for j in jobs if j.tenant_id in found.impact.tenants]
        return replace(found.impact, oldest_at=min(mine, default=None), more=more)
    if _all(found):
        waits = [(job, job.plan.accepted_at) for job in jobs]
    else:
        concerns = _at_work if found.cause in _AT_WORK else _waits
        waits = [(job, at) for job in jobs for at in _since(job, found.service, concerns)]
    if not waits:
        return None
    tenants = sorted({job.tenant_id for job, _ in waits})
    count, oldest = len({job.job_id for job, _ in waits}), min(at for _, at in waits)
    view = facts.services.get(found.service or "")
    if more and view is not None and facts.whole and found.cause not in _AT_WORK:
        count = max(count, view.waiting)
        oldest = min(oldest, view.oldest_sent or oldest)
    return Impact(count, tenants, oldest, more)


def _since(job: Job, service: str | None, concerns: Concerns) -> Iterator[datetime]:
    for planned, step in zip(job.plan.steps, job.steps, strict=True):
        if planned.service == service and concerns(step):
            yield step.updated_at or job.updated_at


def _at_work(step: Step) -> bool:
    return step.state is StepState.IN_PROGRESS


def _waits(step: Step) -> bool:
    return step.held or step.unacked or step.state is StepState.FAILED_RETRY
