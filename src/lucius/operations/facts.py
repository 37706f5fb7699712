"""What the rules look at: gathered when someone asks, once for all the jobs of a question."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final

from lucius.core.effects import Event, Outcome
from lucius.core.job import Execution, Job, Step
from lucius.core.plan import FIRST_SHARD, OUTBOX, TEMPORAL, StepPlan
from lucius.core.record import record
from lucius.core.routing import LANES
from lucius.ports.services import KnownService
from lucius.ports.webhooks import FailedWebhook
from lucius.ports.workspace import Unrestored

MOVER: Final = {OUTBOX: "reconciler", TEMPORAL: "invoker"}
"""By engine, the verb of the process that owns its lanes."""


@record
class Facts:
    """Of the system. `owned`: shards that some process owns; None: all of them, for ever."""

    now: datetime
    services: Mapping[str, KnownService]
    troubles: Mapping[str, str] = field(default_factory=dict)
    protocols: Collection[str] = frozenset()
    """Services that a protocol in force names."""
    owned: Collection[int] | None = None
    whole: bool = True
    """Whether the asker may see what belongs to all tenants together."""
    down: Mapping[str, str] = field(default_factory=dict)
    """Services of `lucius up` whose process has died, and how it ended."""
    provisions: bool = False
    """Whether subscriptions are made by `lucius bus provision`."""

    def lanes_of(self, engine: str) -> list[int]:
        """Those of this engine that some process owns."""
        first = FIRST_SHARD[engine]
        return [lane for lane in range(LANES) if first + lane in (self.owned or ())]


@record
class QueuePlace:
    """Where a held directive waits: behind so many of its own tenant, among so many queues.

    `limited`: its tenant may have one directive out at a time, and has it.
    """

    ahead: int
    queues: int
    more: bool = False
    limited: bool = False


@record
class Ordered:
    """The last order of its kind that someone gave to the job."""

    at: datetime
    by: str | None = None
    reason: str | None = None


@record
class Clues:
    """Of one job, beside what it stores itself."""

    places: Mapping[str, QueuePlace] = field(default_factory=dict)
    """By step."""
    orders: Mapping[str, Ordered] = field(default_factory=dict)
    """By kind: `pause` or `cancel`."""
    progress: Mapping[str, str] = field(default_factory=dict)
    """By step: how far its worker said it is."""
    refused: Mapping[str, datetime] = field(default_factory=dict)
    """By step: when a reply was refused for its token last."""
    unrestored: Sequence[Unrestored] = ()
    """Outputs of the job that a loss of power took, and that could not be written again."""
    given_up: Sequence[FailedWebhook] = ()
    """Its webhooks that are tried no more."""


@record
class Situation:
    """One step of a job that is not finished, and all that the rules may look at."""

    job: Job
    index: int
    facts: Facts
    clues: Clues

    @property
    def step(self) -> Step:
        return self.job.steps[self.index]

    @property
    def plan(self) -> StepPlan:
        return self.job.plan.steps[self.index]

    @property
    def service(self) -> KnownService:
        known = self.facts.services.get(self.plan.service)
        return known if known is not None else KnownService(self.plan.service)

    @property
    def run(self) -> Execution | None:
        return self.step.execution

    @property
    def sent_at(self) -> datetime | None:
        """Since when the directive is out and unanswered."""
        entry = self.step.entry
        if not self.step.unacked or entry is None:
            return None
        return entry.sent_at or entry.released_at

    def waited(self) -> timedelta:
        """For how long it has been where it is."""
        since = self.sent_at or self.step.updated_at or self.job.updated_at
        return self.facts.now - since


def ordered(events: Collection[Event]) -> dict[str, Ordered]:
    """The last pause and the last cancel among these events."""
    found: dict[str, Ordered] = {}
    for event in events:
        if event.type in ("pause", "cancel"):
            said = event.data or {}
            found[event.type] = Ordered(event.at, said.get("by"), said.get("reason"))
    return found


def refused_replies(events: Iterable[Event]) -> dict[str, datetime]:
    """By step, when a reply was refused for its token last."""
    return {
        event.step_id: event.at
        for event in events
        if event.step_id is not None and (event.data or {}).get("outcome") == Outcome.REFUSED.value
    }
