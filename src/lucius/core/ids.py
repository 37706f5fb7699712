"""Ids. Job ids sort by time, so that the rows of live jobs lie together; lease ids cannot be guessed."""

from datetime import datetime
from secrets import token_hex


def new_job_id(now: datetime) -> str:
    milliseconds = int(now.timestamp() * 1000)
    return f"job_{milliseconds:012x}{token_hex(10)}"


def new_lease_id() -> str:
    return token_hex(16)
