"""What every ledger decides alike: who holds a claim, which limit is reached, where a list goes on."""

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, TypeVar

import orjson

from lucius.adapters.ledgers.stored.json_form import maybe_micros
from lucius.core.errors import LedgerRowUnreadableError, RequestError
from lucius.core.job import DELIVERING_JOB, UNSUCCESSFUL_JOB, Job
from lucius.core.text import failures_in
from lucius.ports.ledger import (
    Claim,
    Duplicate,
    Inflight,
    JobQuery,
    KeyReused,
    LimitReached,
    Limits,
    ReadyQueue,
    Taken,
    looks_inside,
)

# Jobs whose rows cannot be read: each is named once in the log, and left out from then on.

log = logging.getLogger("lucius.ledger")

MOST: Final = 10_000
"""Jobs that are remembered. A file with more of them is damaged as a whole."""


class _Found(Protocol):
    @property
    def job_id(self) -> str: ...


F = TypeVar("F", bound=_Found)


class Unreadable:
    def __init__(self) -> None:
        self._jobs: set[str] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._jobs

    def note(self, error: LedgerRowUnreadableError) -> None:
        if error.job_id in self._jobs or len(self._jobs) >= MOST:
            return
        self._jobs.add(error.job_id)
        help_ = "restore a backup; `lucius verify` lists all such jobs"
        log.error("%s; it is left out: %s", error, help_, extra={"jobId": error.job_id})

    def forget(self, job_id: str) -> None:
        """It was read: someone has mended it."""
        self._jobs.discard(job_id)

    def leave_out(self, found: Sequence[F], limit: int) -> Sequence[F]:
        """The first of those that can be read, as far as is known."""
        if not self._jobs:
            return found
        return [each for each in found if each.job_id not in self._jobs][:limit]


K = TypeVar("K")


def may_be_out(state: str) -> bool:
    """Whether a step of a job in that state may be with a service."""
    return state in DELIVERING_JOB


# -- claims ----------------------------------------------------------------------------------


class HeldClaim(NamedTuple):
    """A stored claim and the state of its job, as stored; none where the job is missing."""

    body_hash: str
    keyed: bool
    job_id: str
    state: str | None


def existing_claim(claim: Claim, held: HeldClaim | None) -> Taken | None:
    """None: the claim is free, or may be replaced."""
    if held is None or held.state is None:
        return None
    if held.keyed:
        same = held.body_hash == claim.body_hash
        return Duplicate(held.job_id) if same else KeyReused(held.job_id)
    return None if held.state in UNSUCCESSFUL_JOB else Duplicate(held.job_id)


# -- inflight --------------------------------------------------------------------------------


class InflightGroup(NamedTuple):
    """What live jobs are counted by."""

    tenant_id: str
    lane: int
    mode: str


def group_of(job: Job) -> InflightGroup:
    routing = job.plan.routing
    return InflightGroup(job.plan.tenant_id, routing.lane, routing.resolved_mode.value)


@dataclass(slots=True)
class InflightCounts:
    total: int = 0
    tenants: dict[str, int] = field(default_factory=dict)
    lanes: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, group: InflightGroup, change: int) -> None:
        self.total += change
        _add(self.tenants, group.tenant_id, change)
        _add(self.lanes, (group.lane, group.mode), change)

    def saturated(self, group: InflightGroup, limits: Limits) -> LimitReached | None:
        if limits.tenant is not None and self.tenants.get(group.tenant_id, 0) >= limits.tenant:
            return LimitReached("tenant")
        if limits.total is not None and self.total >= limits.total:
            return LimitReached("total")
        most = limits.of_lane(group.mode)
        if most is not None and self.lanes.get((group.lane, group.mode), 0) >= most:
            return LimitReached("lane")
        return None

    def view(self) -> Inflight:
        return Inflight(self.total, dict(self.tenants), dict(self.lanes))


def _add(counts: dict[K, int], key: K, change: int) -> None:
    value = counts.get(key, 0) + change
    if value:
        counts[key] = value
    else:
        counts.pop(key, None)


# -- ready queues ----------------------------------------------------------------------------


class QueueKey(NamedTuple):
    queue_name: str
    lane: int
    tenant_id: str


class HeldCounts(dict[QueueKey, int]):
    """How many ready entries each queue holds; empty queues are absent."""

    def add(self, key: QueueKey, change: int) -> None:
        _add(self, key, change)

    def view(self, lanes: frozenset[int]) -> list[ReadyQueue]:
        return [ReadyQueue(*key, held) for key, held in self.items() if key.lane in lanes]


def ready_steps(job: Job) -> tuple[int, ...]:
    """The steps whose entries wait for nothing but room in the window."""
    return tuple([index for index, step in enumerate(job.steps) if step.ready])


def queue_of(job: Job, index: int) -> QueueKey:
    plan = job.plan
    return QueueKey(plan.queue_name(plan.steps[index].service), plan.shard, plan.tenant_id)


# -- lists -----------------------------------------------------------------------------------


class PageEnd(NamedTuple):
    """Where a page ended: lists run from the newest job to the oldest."""

    created_at: int
    no: int


def cursor_of(query: JobQuery, place: PageEnd) -> str:
    raw = orjson.dumps([_fingerprint(query), *place])
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def place_of(query: JobQuery) -> PageEnd | None:
    """Where the query goes on; RequestError where its cursor was made for other filters."""
    if query.cursor is None:
        return None
    try:
        padded = query.cursor + "=" * (-len(query.cursor) % 4)
        fingerprint, created_at, no = orjson.loads(urlsafe_b64decode(padded.encode()))
        place = PageEnd(int(created_at), int(no))
    except (Base64Error, ValueError, TypeError) as error:
        raise _invalid("the cursor is not one that this service gave") from error
    if fingerprint != _fingerprint(query):
        raise _invalid("the cursor belongs to other filters")
    return place


def _invalid(detail: str) -> RequestError:
    return RequestError("INVALID_CURSOR", detail, faults=(("/cursor", detail),))


def _fingerprint(query: JobQuery) -> str:
    filters = [
        None if query.tenant_ids is None else sorted(query.tenant_ids),
        None if query.states is None else sorted(query.states),
        query.request_type,
        maybe_micros(query.created_from),
        maybe_micros(query.created_to),
        query.dlq,
    ]
    if looks_inside(query):
        filters += [_sorted(each) for each in (query.codes, query.steps, query.services)]
        filters.append(query.group)
    return sha256(orjson.dumps(filters)).hexdigest()[:16]


def _sorted(words: Collection[str] | None) -> list[str] | None:
    return None if words is None else sorted(words)


def matches_inside(query: JobQuery, job: Job) -> bool:
    """What only the job itself can tell: how its steps failed, and which are under way."""
    if not looks_inside(query):
        return True
    failures = failures_in(job)
    pairs = zip(job.plan.steps, job.steps, strict=True)
    steps = {failure.step_id for failure in failures}
    steps |= {planned.step_id for planned, step in pairs if step.out or step.held}
    services = {planned.service for planned in job.plan.steps if planned.step_id in steps}
    return (
        (query.codes is None or any(failure.code in query.codes for failure in failures))
        and (query.group is None or any(failure.group == query.group for failure in failures))
        and (query.steps is None or not steps.isdisjoint(query.steps))
        and (query.services is None or not services.isdisjoint(query.services))
    )


def matches(query: JobQuery, job: Job) -> bool:
    plan = job.plan
    return (
        (query.tenant_ids is None or plan.tenant_id in query.tenant_ids)
        and (query.states is None or job.state in query.states)
        and (query.request_type is None or plan.request_type == query.request_type)
        and (query.created_from is None or plan.accepted_at >= query.created_from)
        and (query.created_to is None or plan.accepted_at < query.created_to)
        and (not query.dlq or job.in_dlq)
        and matches_inside(query, job)
    )
