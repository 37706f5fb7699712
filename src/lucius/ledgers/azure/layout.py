"""How the rows of one job lie: the one thing in which the two Azure ledgers differ."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Protocol

from lucius.core.effects import Event
from lucius.core.job import Job, Step
from lucius.ledgers.azure.heads import Glance, StepsHead, Stored
from lucius.ledgers.azure.store import Refused, Row
from lucius.ports.ledger import Drift


class Layout(Protocol):
    @property
    def tables(self) -> Sequence[str]:
        """Their names."""

    @property
    def apart(self) -> bool:
        """Whether a save leaves rows to be copied, so that a wake-up must stand until they are."""

    async def read(self, job_id: str, tenant_id: str | None = None) -> Stored | None:
        """The job as last committed; none where there is none, or a tombstone."""

    async def glance(self, job_id: str, tenant_id: str) -> Glance | None: ...

    async def events(self, job_id: str, after: int, limit: int) -> list[Event]: ...

    def walk(self) -> AsyncIterator[tuple[str, Sequence[Row]]]:
        """Every job's rows, for `verify`: `JOB`, `JOB|PLAN`, `STEP|..`, `EVENT|..` and others."""

    def drifts(self, stored: Stored, rows: Mapping[str, Row], *, woken: bool) -> Iterator[Drift]:
        """Where rows of a job contradict it. `woken`: a row of its lane will bring it up."""

    async def insert(self, job: Job, head: StepsHead, events: Sequence[Event]) -> str | Refused:
        """The ETag of the new job; refused where its id is taken."""

    async def replace(
        self,
        stored_steps: Sequence[Step],
        etag: str,
        job: Job,
        head: StepsHead,
        events: Sequence[Event],
    ) -> str | Refused:
        """The new ETag; refused where the stored one is another. `stored_steps`: what is there now."""

    async def touch(self, glance: Glance, wakeup: str) -> str | Refused:
        """Let the job rely on another wake-up row. It fences: whoever has the old ETag lands no more."""

    async def finish(self, glance: Glance) -> bool:
        """Copy what saves of this job have left to be copied, where its rows lie apart. False: it failed."""

    def is_copied(self, job_id: str) -> bool:
        """Whether the last save here has left nothing to be copied."""

    async def copy_late(self, *, all_own: bool = False) -> list[Job]:
        """Copy what has waited long enough, or all that was saved here. The jobs that are whole now."""

    async def bury(self, job_id: str, tenant_id: str) -> bool:
        """A tombstone where the job would be. False: something is there."""

    async def delete(self, job_id: str, tenant_id: str) -> None: ...
