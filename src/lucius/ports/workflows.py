"""The workflows port: where jobs of the Temporal engine have their sequence and their time."""

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Any, Protocol

from lucius.core.effects import SignalWorkflow
from lucius.core.job import Job


class Fate(StrEnum):
    """Of a workflow. Missing: the server has none of that id, or has forgotten it."""

    RUNNING = "running"
    ENDED = "ended"
    MISSING = "missing"


class Workflows(Protocol):
    """WorkflowsUnavailableError: nobody knows whether it was done. Doing it again is harmless."""

    async def start(self, job: Job) -> None:
        """Start the job's workflow, unless there is or was one."""

    async def signal(self, job: Job, effect: SignalWorkflow) -> None:
        """Tell it how the job stands. One that has ended, or never was, is not told."""

    def running(self) -> AsyncIterator[str]:
        """Ids of the jobs whose workflows have not ended."""

    async def fate(self, job_id: str) -> "Fate":
        """Whether it runs, asked of the workflow itself: what is listed may be behind."""

    async def standing(self, job_id: str) -> Mapping[str, Any] | None:
        """The newest snapshot that it has. None: it does not answer, as without a worker."""

    async def check(self) -> None:
        """Return if workflows can be reached; else raise with a sentence that says what is wrong."""

    async def provision(self) -> list[str]:
        """Register what workflows are found by. The names of what was missing."""

    async def close(self) -> None: ...
