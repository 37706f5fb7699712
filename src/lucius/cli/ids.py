"""Ids of jobs as people type them: whole, the beginning of one, or `last`."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lucius.client import Client

LAST = "last"
_BEGINNING = re.compile(r"(?:job_)?([0-9a-f]{1,31})")
"""Of an id of ours: milliseconds in twelve hexadecimal digits, then twenty more."""
_TIME_DIGITS = 12
_MOST_SHOWN = 5
_MOST_PAGES = 4


async def whole_id(client: "Client", text: str) -> str:
    """The id of the one job that is meant. What cannot be the beginning of an id is left as it is."""
    if text == LAST:
        jobs = (await client.jobs(limit=1))["jobs"]
        if not jobs:
            raise click.UsageError("there is no job yet, so none is the last one")
        return jobs[0]["jobId"]
    beginning = _BEGINNING.fullmatch(text)
    if beginning is None:
        return text
    found = await _beginning_with(client, beginning[1])
    if len(found) > 1:
        shown = ", ".join(found[:_MOST_SHOWN]) + (" ..." if len(found) > _MOST_SHOWN else "")
        raise click.UsageError(f"{text} is the beginning of several ids: {shown}; give more of it")
    return found[0] if found else text


async def _beginning_with(client: "Client", digits: str) -> list[str]:
    """An id begins with its time, so the beginning of one says when its job was accepted."""
    first, after = _span(digits[:_TIME_DIGITS])
    query: dict[str, str | int] = {"created_from": first, "created_to": after, "limit": 500}
    found: list[str] = []
    for _ in range(_MOST_PAGES):
        page = await client.jobs(**query)
        ids = (job["jobId"] for job in page["jobs"])
        found += [job_id for job_id in ids if job_id.startswith(f"job_{digits}")]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    return found


def _span(digits: str) -> tuple[str, str]:
    size = 16 ** (_TIME_DIGITS - len(digits))
    first = int(digits, 16) * size
    return _instant(first), _instant(first + size)


def _instant(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    last = 253_402_300_799  # the last second that the calendar has
    at = datetime.fromtimestamp(min(seconds, last), UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"
