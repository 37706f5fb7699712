"""Ids. Job ids sort by time, so that the rows of live jobs lie together; lease ids cannot be guessed."""

from datetime import UTC, datetime
from os import urandom


def new_job_id(now: datetime) -> str:
    milliseconds = int(now.timestamp() * 1000)
    return f"job_{milliseconds:012x}{urandom(10).hex()}"


def new_lease_id() -> str:
    return urandom(16).hex()


def accepted_at(job_id: str) -> datetime | None:
    """When a job id was made, or None if it is not one of ours."""
    try:
        return datetime.fromtimestamp(int(job_id.removeprefix("job_")[:12], 16) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
