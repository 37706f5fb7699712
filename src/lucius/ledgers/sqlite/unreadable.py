"""Jobs whose rows cannot be read: each is named once in the log, and left out from then on."""

import logging
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from lucius.core.errors import LedgerRowUnreadableError

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
