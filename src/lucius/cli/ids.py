"""Ids of jobs as people type them: whole, the beginning of one, or `last`."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from lucius.core.ids import digits_in, made_between

if TYPE_CHECKING:
    from lucius.client.plain import PlainClient

LAST = "last"
_MOST_SHOWN = 5
_MOST_PAGES = 4


async def whole_id(client: "PlainClient", text: str) -> str:
    """The id of the one job that is meant. What cannot be the beginning of an id is left as it is."""
    if text == LAST:
        jobs = (await client.jobs(limit=1))["jobs"]
        if not jobs:
            raise click.UsageError("there is no job yet, so none is the last one")
        return str(jobs[0]["jobId"])
    digits = digits_in(text)
    if digits is None:
        return text
    found = await _beginning_with(client, digits)
    if len(found) > 1:
        shown = ", ".join(found[:_MOST_SHOWN]) + (" ..." if len(found) > _MOST_SHOWN else "")
        raise click.UsageError(f"{text} is the beginning of several ids: {shown}; give more of it")
    return found[0] if found else text


async def _beginning_with(client: "PlainClient", digits: str) -> list[str]:
    """An id begins with its time, so the beginning of one says when its job was accepted."""
    first, after = (_instant(at) for at in made_between(digits))
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


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
