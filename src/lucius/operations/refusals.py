"""Requests that were refused, as far as an operator will ask why: of tenants at their limit, and of workers.

Strangers may send anything, so what is remembered is bounded and none of their words is a cause by itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final

from lucius.core.effects import Committed
from lucius.core.record import record
from lucius.operations.service_stats import instant_of, seconds_of

MINUTES: Final = 10
"""For this long it is remembered how many requests of a tenant were refused."""
MOST: Final = 500
"""Tenants, services and names that are remembered; the one that was met longest ago makes room."""
FIRST_PAUSE: Final = 5
"""Seconds until a refused tenant should come again, where none of its jobs has ended since."""
PAUSES: Final = range(1, 61)
PACE: Final = timedelta(minutes=2)


@dataclass(slots=True)
class _Tenant:
    refused: dict[int, int] = field(default_factory=dict)
    """By minute."""
    ended: dict[int, int] = field(default_factory=dict)
    last: datetime | None = None


@record
class RefusedPull:
    """A pull that was answered with an error: by which key, if it was shown, or in which name."""

    at: datetime
    status: int
    key_id: str | None = None


@record
class RefusedTenant:
    """Requests of the last minutes that were refused because of the tenant's own limit."""

    requests: int
    last_at: datetime


class Refusals:
    """`listen` to commits: how fast jobs of a refused tenant end says when it should come again."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._tenants: dict[str, _Tenant] = {}
        self._pulls: dict[str, RefusedPull] = {}
        """By service."""
        self._misnamed: dict[str, datetime] = {}
        """Names for which somebody pulls, and that no protocol has."""

    def saturated(self, tenant_id: str) -> int:
        """A request was refused. In how many seconds the next one has a chance."""
        tenant, minute = self._tenants.pop(tenant_id, None) or _Tenant(), self._minute()
        tenant.refused = {m: n for m, n in tenant.refused.items() if m > minute - MINUTES}
        tenant.refused[minute] = tenant.refused.get(minute, 0) + 1
        tenant.last = self._now()
        _keep(self._tenants, tenant_id, tenant)
        ended = sum(n for m, n in tenant.ended.items() if m > minute - PACE.seconds // 60)
        pause = ceil(PACE.seconds / ended) if ended else FIRST_PAUSE
        return min(max(pause, PAUSES[0]), PAUSES[-1])

    def pull_refused(self, service: str, status: int, key_id: str | None) -> None:
        self._pulls.pop(service, None)
        _keep(self._pulls, service, RefusedPull(self._now(), status, key_id))

    def misnamed(self, name: str) -> None:
        self._misnamed.pop(name, None)
        _keep(self._misnamed, name, self._now())

    def listen(self, commit: Committed) -> None:
        if not self._tenants or not commit.job.terminal:
            return
        tenant = self._tenants.get(commit.job.tenant_id)
        if tenant is not None and commit.before is not None and not commit.before.terminal:
            minute = self._minute()
            tenant.ended = {m: n for m, n in tenant.ended.items() if m > minute - MINUTES}
            tenant.ended[minute] = tenant.ended.get(minute, 0) + 1

    def _minute(self) -> int:
        return int(self._now().timestamp()) // 60

    # -- for other processes -----------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "tenants": {
                name: [seconds_of(tenant.last), list(tenant.refused.items())]
                for name, tenant in self._tenants.items()
                if tenant.last is not None
            },
            "pulls": {
                name: [seconds_of(pull.at), pull.status, pull.key_id]
                for name, pull in self._pulls.items()
            },
            "misnamed": {name: seconds_of(at) for name, at in self._misnamed.items()},
        }


def _keep(kept: dict[str, Any], name: str, value: Any) -> None:
    if len(kept) >= MOST:
        del kept[next(iter(kept))]
    kept[name] = value


@record
class Refused:
    """What all processes have refused."""

    tenants: Mapping[str, RefusedTenant] = field(default_factory=dict)
    pulls: Mapping[str, RefusedPull] = field(default_factory=dict)
    misnamed: Mapping[str, datetime] = field(default_factory=dict)


def refused_in(records: list[Mapping[str, Any]], now: datetime) -> Refused:
    """What the records of several processes say together, of the last minutes."""
    oldest = now - timedelta(minutes=MINUTES)
    tenants: dict[str, RefusedTenant] = {}
    pulls: dict[str, RefusedPull] = {}
    misnamed: dict[str, datetime] = {}
    for each in records:
        for name, (last, minutes) in each.get("tenants", {}).items():
            count = sum(n for minute, n in minutes if minute * 60 > oldest.timestamp() - 60)
            known = tenants.get(name, RefusedTenant(0, instant_of(last)))
            at = max(known.last_at, instant_of(last))
            if count:
                tenants[name] = RefusedTenant(known.requests + count, at)
        for name, (seconds, status, key_id) in each.get("pulls", {}).items():
            at = instant_of(seconds)
            if at > oldest and (name not in pulls or at > pulls[name].at):
                pulls[name] = RefusedPull(at, status, key_id)
        for name, seconds in each.get("misnamed", {}).items():
            if (at := instant_of(seconds)) > oldest:
                misnamed[name] = max(misnamed.get(name, at), at)
    return Refused(tenants, pulls, misnamed)
