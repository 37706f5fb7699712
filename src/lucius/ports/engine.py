"""The engine port: what the API asks of whoever runs the jobs. One over a socket could stand for it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict

from lucius.core.effects import Event, Outcome
from lucius.core.inputs import Input
from lucius.core.job import Job
from lucius.core.record import record
from lucius.ports.ledger import JobPage, JobQuery


@record
class Submitted:
    job_id: str
    state: str
    duplicate: bool
    warnings: tuple[tuple[str, str], ...] = ()
    """Where the request may not mean what it says, and why. It was accepted all the same."""


@record
class Applied:
    """What an input did, and the job as it stands after it."""

    outcome: Outcome
    job: Job
    code: str | None = None


class BacklogRow(TypedDict):
    """What waits and runs for a service in one mode on one lane.

    Autoscaling follows held, released and in progress together. `oldest_seconds`: for how long the
    longest of those that are released has waited for its ACK.
    """

    service: str
    mode: str
    lane: int
    held: int
    released: int
    in_progress: int
    window: int
    oldest_seconds: float


class Engine(Protocol):
    async def submit(
        self, envelope: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Submitted:
        """Validate, claim and create; returns once the job is durable. RequestError otherwise."""

    async def redrive(
        self,
        job_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        output_ref: Any = None,
        audit: Mapping[str, str] | None = None,
    ) -> Submitted:
        """A new job from the failed step on, linked to the old one. Repeating it answers the same.

        `payload` and `output_ref` replace those of the old one, where they are given.
        `audit`: who asked for it, and why; the first event of the new job shows it.
        """

    async def apply(self, job_id: str, received: Input) -> Applied | None:
        """Move a job by one input; durable on return. None: there is no such job."""

    async def job(self, job_id: str) -> Job | None:
        """The job as last committed."""

    async def wait(self, job_id: str, version: int, seconds: float) -> Job | None:
        """The job once its version is past that one, or as it is after so many seconds."""

    async def ended(self, job_id: str, seconds: float) -> Job | None:
        """The job once it is terminal, or as it is after so many seconds."""

    async def events(self, job_id: str, after: int, limit: int) -> Sequence[Event]:
        """Events with a `seq` greater than `after`, in order, without gaps."""

    async def jobs(self, query: JobQuery) -> JobPage:
        """One page, newest first. It may be short, or empty, and still have a cursor."""

    async def count(self, query: JobQuery) -> int:
        """How many jobs match, however many there are."""

    async def backlog(self) -> Sequence[BacklogRow]:
        """What waits and runs on all lanes, by whomever they are owned."""

    async def unreadable(self) -> int:
        """How many jobs were met that cannot be read."""
