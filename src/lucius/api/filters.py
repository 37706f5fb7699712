"""A filter of jobs in a request body as a query of the ledger, bounded to the caller's tenants."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from lucius.api.context import Caller
from lucius.api.parameters import utc
from lucius.api.problems import Problem
from lucius.contract.models.control import JobFilter
from lucius.core.idempotency import normal_request_type
from lucius.core.states import LIVE_JOB, JobState
from lucius.ports.ledger import JobQuery


def job_filter(given: JobFilter, caller: Caller, default_states: Collection[JobState]) -> JobQuery:
    """`default_states`: those of a filter that names none."""
    return JobQuery(
        tenant_ids=_tenants(given, caller),
        states=_wanted_states(given, default_states),
        request_type=normal_request_type(given.request_type) if given.request_type else None,
        created_from=_moment(given.created_from),
        created_to=_moment(given.created_to),
        codes=_some(given.code),
        steps=_some(given.step),
        services=_some(given.service),
        group=given.group,
    )


def _wanted_states(given: JobFilter, default: Collection[JobState]) -> frozenset[JobState]:
    named = _some(getattr(given, "state", None))
    asked = frozenset(JobState(word.upper()) for word in named or ()) or frozenset(default)
    if not getattr(given, "live", False):
        return asked
    if asked.isdisjoint(LIVE_JOB):
        detail = "no job is live of those that this order takes: leave it out"
        raise Problem("INVALID_BODY", errors=[{"pointer": "/filter/live", "detail": detail}])
    return asked & frozenset(LIVE_JOB)


def _tenants(given: JobFilter, caller: Caller) -> frozenset[str] | None:
    asked = _some(given.tenant_id)
    if asked is None or caller.tenants is None:
        return caller.tenants if asked is None else asked
    return asked & caller.tenants


def _some(given: Any) -> frozenset[str] | None:
    if given is None:
        return None
    return frozenset((given,) if isinstance(given, str) else given)


def _moment(given: str | None) -> datetime | None:
    return utc(given) if given is not None else None
