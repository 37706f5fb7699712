"""A filter of jobs, of a query or of a body, as a query of the ledger, bounded to the caller's tenants."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Protocol

from lucius.api.context import Caller
from lucius.api.parameters import utc
from lucius.api.problems import Problem
from lucius.contract.models.control import JobFilter
from lucius.core.idempotency import normal_request_type
from lucius.core.states import LIVE_JOB, JobState
from lucius.ports.ledger import JobQuery


class AnyFilter(Protocol):
    """What those of queries and of bodies have in common: words, one or several, and moments."""

    tenant_id: Any
    request_type: str | None
    code: Any
    step: Any
    service: Any
    group: str | None
    created_from: Any
    created_to: Any


def job_query(given: AnyFilter, caller: Caller, states: frozenset[JobState] | None) -> JobQuery:
    return JobQuery(
        tenant_ids=tenants_asked(given.tenant_id, caller),
        states=states,
        request_type=normal_request_type(given.request_type) if given.request_type else None,
        created_from=_moment(given.created_from),
        created_to=_moment(given.created_to),
        codes=_some(given.code),
        steps=_some(given.step),
        services=_some(given.service),
        group=given.group,
    )


def job_filter(given: JobFilter, caller: Caller, default_states: Collection[JobState]) -> JobQuery:
    """`default_states`: those of a filter that names none."""
    named = _some(getattr(given, "state", None))
    asked = frozenset(JobState(word.upper()) for word in named or ()) or frozenset(default_states)
    if getattr(given, "live", False):
        if asked.isdisjoint(LIVE_JOB):
            detail = "no job is live of those that this order takes: leave it out"
            raise Problem("INVALID_BODY", errors=[{"pointer": "/filter/live", "detail": detail}])
        asked &= frozenset(LIVE_JOB)
    return job_query(given, caller, asked)


def tenants_asked(named: Any, caller: Caller) -> frozenset[str] | None:
    """Of those that are asked for, the caller's; None: all."""
    asked = _some(named)
    if asked is None or caller.tenants is None:
        return caller.tenants if asked is None else asked
    return asked & caller.tenants


def _some(given: Any) -> frozenset[str] | None:
    return frozenset((given,) if isinstance(given, str) else given) if given else None


def _moment(given: datetime | str | None) -> datetime | None:
    return utc(given) if isinstance(given, str) else given
