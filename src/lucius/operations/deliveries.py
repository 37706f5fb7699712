"""Webhooks that are not delivered: known from commits, and to all processes by their notes.

The job itself keeps what it owes, how often it was tried and why that failed. This is the list of such jobs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from lucius.core.effects import Committed, Event
from lucius.core.inputs import Kind
from lucius.core.job import NOTIFY, Job, notices_of
from lucius.operations.service_stats import instant_of, seconds_of
from lucius.ports.webhooks import FailedWebhook

MOST: Final = 1000
"""Jobs that are remembered; the one that failed longest ago makes room."""
MOST_NOTED: Final = 200
"""Jobs in the note for other processes, the latest."""


class Deliveries:
    """Of this process. A job is left out once its client was told, or it is pruned by room."""

    def __init__(self) -> None:
        self._failed: dict[str, list[FailedWebhook]] = {}

    def listen(self, commit: Committed) -> None:
        job = commit.job
        if not job.terminal or not job.plan.callback_urls:
            return
        given_up = given_up_in(commit.decision.events)
        known = [
            *failing(job),
            *(
                FailedWebhook(
                    *(job.job_id, job.tenant_id, host_of(job, owed_id)),
                    *(tries_of(commit.before, owed_id), error, job.updated_at),
                )
                for owed_id, error in given_up.items()
            ),
        ]
        settled = any(event.type != Kind.TICK.value for event in commit.decision.events)
        earlier = self._failed.pop(job.job_id, [])
        if not known and not settled:
            known = earlier
        if known:
            if len(self._failed) >= MOST:
                del self._failed[next(iter(self._failed))]
            self._failed[job.job_id] = known

    def record(self) -> list[list[Any]]:
        """As JSON data."""
        latest = [each for job in list(self._failed.values())[-MOST_NOTED:] for each in job]
        return [
            [
                *(each.job_id, each.tenant_id, each.host, each.tries, each.error),
                *(seconds_of(each.failed_at), seconds_of(each.next_at) if each.next_at else None),
            ]
            for each in latest
        ]

    def recall(self, rows: Iterable[Sequence[Any]]) -> None:
        """What an earlier process of this installation knew."""
        for each in read_failed(rows):
            self._failed.setdefault(each.job_id, []).append(each)

    def all(self) -> list[FailedWebhook]:
        return [each for job in self._failed.values() for each in job]


def read_failed(rows: Iterable[Sequence[Any]]) -> list[FailedWebhook]:
    found: list[FailedWebhook] = []
    for job_id, tenant_id, host, tries, error, failed, later in rows:
        next_at = instant_of(later) if later is not None else None
        found.append(
            FailedWebhook(job_id, tenant_id, host, tries, error, instant_of(failed), next_at)
        )
    return found


def merged_failed(
    several: Iterable[Iterable[FailedWebhook]], tenants: Collection[str] | None
) -> list[FailedWebhook]:
    """What several processes know, each webhook as the latest of them does; the latest first."""
    found: dict[tuple[str, str], FailedWebhook] = {}
    for each in (one for known in several for one in known):
        known = found.get((each.job_id, each.host))
        if known is None or each.failed_at > known.failed_at:
            found[each.job_id, each.host] = each
    mine = (each for each in found.values() if tenants is None or each.tenant_id in tenants)
    return sorted(mine, key=lambda each: each.failed_at, reverse=True)


def failing(job: Job) -> list[FailedWebhook]:
    """Those of a job that were tried without success, and are tried again."""
    return [
        FailedWebhook(
            *(job.job_id, job.tenant_id, _host(owed.target), owed.attempts, owed.fault),
            *(job.updated_at, owed.next_at),
        )
        for owed in notices_of(job)
        if owed.fault is not None
    ]


def given_up_in(events: Iterable[Event]) -> dict[str, str]:
    """By the id of what was owed, why it was given up; a later delivery or a new try takes it back."""
    found: dict[str, str] = {}
    for event in events:
        said: Mapping[str, Any] = event.data or {}
        if event.type == Kind.RESEND.value:
            found.clear()
        elif said.get("effect") == NOTIFY and said["performed"]:
            found.pop(str(said["owed_id"]), None)
        elif said.get("effect") == NOTIFY:
            found[str(said["owed_id"])] = str(said.get("reason") or "no answer")
    return found


def host_of(job: Job, owed_id: str) -> str:
    number = owed_id.rpartition("-")[2]
    urls = job.plan.callback_urls
    return _host(urls[int(number)]) if number.isdigit() and int(number) < len(urls) else "?"


def tries_of(job: Job | None, owed_id: str) -> int:
    owed = notices_of(job) if job is not None else []
    return next((each.attempts for each in owed if each.owed_id == owed_id), 1)


def _host(url: str) -> str:
    """The rest of an address may be a secret of the client's."""
    return urlsplit(url).hostname or "?"
